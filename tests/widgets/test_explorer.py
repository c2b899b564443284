"""The explorer without a browser, with a real run."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest

import lightmeter as lm
from lightmeter.errors import JournalError
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from tests.tables.replace_table import replace_table


@pytest.fixture
def explorer(run):
    """A new explorer of the run, with its thumbnails loaded."""
    explorer = lm.Explorer(run)
    explorer.wait()
    return explorer


def names(explorer):
    return [card.item_id for card in explorer.page.cards]


def test_all_rows_are_shown_in_manifest_order(explorer):
    """Without a filter the gallery shows every row, duplicates and missing files included."""
    assert names(explorer)[:4] == ["chelsea", "coffee", "samoyed", "again"]
    assert "1 to 5 of 5 items" in explorer.position.value
    shown = [slot for slot in explorer.card_grid.slots if slot.box.layout.display != "none"]
    assert len(shown) == 5


def test_cards_show_picture_tags_palette_rating_and_status(explorer):
    """A card shows the thumbnail with alternative text, tags, palette, NSFW severity and status."""
    html = explorer.card_grid.slots[0].html.value
    assert 'src="data:image/jpeg;base64,' in html
    assert 'alt="chelsea.jpg: cat' in html
    assert 'aria-label="colours: #' in html
    assert "NSFW 0.0" in html
    assert "ok" in html


def test_videos_have_a_picture_and_a_duration(explorer):
    """A video's card shows its first frame and its duration."""
    html = explorer.card_grid.slots[2].html.value
    assert "video · " in html
    assert "data:image/jpeg" in html


def test_missing_files_show_the_reason(explorer):
    """A missing file has a reason in place of the picture, and its name is escaped."""
    html = explorer.card_grid.slots[4].html.value
    assert "No such file" in html
    assert "skipped" in html
    assert "<img" not in html


def test_tag_filter(explorer):
    """The list offers tags with their number of items; a choice shows these items only."""
    assert "cat (2)" in explorer.filters.tag.options
    explorer.filters.tag.value = "cat (2)"
    assert names(explorer) == ["chelsea", "again"]
    explorer.filters.tag.value = "coff"
    assert names(explorer) == ["coffee"]
    assert "of 5" in explorer.position.value


def test_color_severity_and_status_filter(explorer):
    """Each filter shows the matching items only, and Clear resets all filters."""
    own = explorer.page.cards[1].colors[0][0]
    explorer.filters.color.value = own
    explorer.filters.by_color.value = True
    assert names(explorer)[0] == "coffee"
    explorer.filters.clear.click()
    explorer.filters.severity.value = (0.9, 1.0)
    assert names(explorer) == []
    assert "No item is left" in explorer.position.value
    explorer.filters.clear.click()
    explorer.filters.status.value = "duplicate"
    assert names(explorer) == ["again"]
    explorer.filters.clear.click()
    assert len(names(explorer)) == 5


def test_color_names_and_invalid_colors(explorer):
    """A CSS name filters as its hex value; an invalid color shows an error and keeps the page."""
    explorer.filters.by_color.value = True
    for red in ("red", "Red ", "#f00", "#ff0000ff"):
        explorer.filters.color.value = red
        assert explorer.page.filters.color == "#ff0000"
        assert explorer.error.value == ""
    explorer.filters.color.value = "reddish"
    assert "&#x27;reddish&#x27; is no colour" in explorer.error.value
    assert explorer.page.filters.color == "#ff0000"
    explorer.filters.clear.click()
    assert explorer.error.value == ""


def test_errors_of_callbacks_are_shown(explorer, monkeypatch):
    """An error in any callback is shown in the widget, and disappears with the next success."""

    def broken(*_):
        raise RuntimeError("the tables are gone")

    with monkeypatch.context() as patch:
        patch.setattr(explorer._data, "page", broken)
        patch.setattr(explorer._data, "entries", broken)
        patch.setattr(explorer.card_grid, "show", broken)
        buttons = (explorer.previous, explorer.next, explorer.filters.clear, explorer.card_grid.slots[0].button)
        for button in (*buttons, explorer.close):
            explorer.error.value = ""
            button.click()
            assert "the tables are gone" in explorer.error.value
        explorer.error.value = ""
        explorer.show_blurred.value = True
        assert "the tables are gone" in explorer.error.value
    explorer.show_blurred.value = False
    assert explorer.error.value == ""


def test_details_show_every_frame_with_its_time(explorer):
    """The details of a video show the findings of each frame with its time."""
    explorer.card_grid.slots[2].button.click()
    assert explorer.selected.item_id == "samoyed"
    assert "1 at 1 s" in explorer.detail.value.replace("\N{NO-BREAK SPACE}", " ")
    assert "whole" in explorer.detail.value
    assert "palette" in explorer.detail.value
    explorer.close.click()
    assert explorer.selected is None
    assert explorer.detail.value == ""


def test_details_of_a_skipped_row_show_the_prechecks(explorer):
    """The details of a row that was not sent show the pre-check findings, escaped."""
    explorer.card_grid.slots[4].button.click()
    assert "prechecks" in explorer.detail.value
    assert "<img" not in explorer.detail.value


def test_show_blurred_shows_the_full_picture(run):
    """A likely unsafe picture is sent blurred, and in full once the checkbox is checked."""
    explorer = lm.Explorer(run)
    explorer.wait()
    page = explorer.page
    explorer.page = replace(page, cards=(replace(page.cards[0], severity=0.9), *page.cards[1:]))
    explorer.open(None)
    assert "blurred: NSFW" in explorer.card_grid.slots[0].html.value
    blurred = explorer.card_grid.slots[0].html.value
    explorer.show_blurred.value = True
    assert "blurred" not in explorer.card_grid.slots[0].html.value
    assert len(explorer.card_grid.slots[0].html.value) > len(blurred) + 1000


def test_a_single_page_disables_the_page_buttons(explorer):
    """With one page, Previous and Next are disabled."""
    assert explorer.previous.disabled
    assert explorer.next.disabled


def test_page_buttons(run, tmp_path):
    """Next and Previous change the page; a filter starts at the first page."""
    out = tmp_path / "out"
    manifest = tmp_path / "many.csv"
    manifest.write_text("url\n" + "".join(f"no url {i}\n" for i in range(30)), encoding="utf-8")
    run = lm.sync(lm.run(lm.sync(lm.plan(manifest, features="colors")), out))
    explorer = lm.Explorer(out)
    assert len(explorer.page.cards) == 24
    explorer.next.click()
    assert "25 to 30 of 30" in explorer.position.value
    assert explorer.next.disabled
    explorer.previous.click()
    assert explorer.page.filters.page == 0
    explorer.next.click()
    explorer.filters.status.value = "skipped"
    assert explorer.page.filters.page == 0
    assert run.summary().counts["skipped"] == 30


def test_a_folder_opens_like_a_run(run):
    """A folder, as a path or a string, opens like the run."""
    assert names(lm.Explorer(run.folder)) == names(lm.Explorer(str(run.folder))) == names(lm.Explorer(run))


def test_a_folder_without_a_run_is_an_error(tmp_path):
    """A folder without a run raises JournalError."""
    with pytest.raises(JournalError):
        lm.Explorer(tmp_path)


def test_a_run_without_tables_names_the_command(run, tmp_path):
    """Without tables the gallery is empty and names the command that writes them."""
    shutil.copy(run.folder / "journal.sqlite", tmp_path)
    explorer = lm.Explorer(tmp_path)
    assert "lightmeter rebuild" in explorer.position.value


def test_text_representation(explorer):
    """A viewer without widgets shows one line of text about the explorer."""
    assert explorer._repr_mimebundle_()["text/plain"].endswith("5 of 5 items)")


@pytest.fixture
def run_with_embeddings(run, tmp_path):
    """A copy of the run with embeddings: coffee is more similar to chelsea than samoyed is."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    schema_, vectors = schema("embeddings"), {"chelsea": [1, 0], "coffee": [0.8, 0.6], "samoyed": [0.6, 0.8]}
    columns = {field.name: pa.nulls(len(vectors), field.type) for field in schema_}
    columns |= {
        "item_id": pa.array(vectors),
        "model": pa.array(["m"] * len(vectors)),
        "vector": pa.array(vectors.values(), schema_.field("vector").type),
    }
    with replace_table(Dataset(out), "embeddings", schema_) as part:
        part.write(pa.table(columns, schema=schema_))
    return out


def test_similar_items(run_with_embeddings):
    """Similar shows the similar items, most similar first, combined with other filters; Clear shows all items."""
    explorer = lm.Explorer(run_with_embeddings)
    explorer.card_grid.slots[0].button.click()
    assert explorer.similar.layout.display == ""
    explorer.similar.click()
    assert names(explorer) == ["coffee", "samoyed"]
    assert "2 items most like chelsea.jpg, the nearest first" in explorer.position.value
    explorer.filters.status.value = "skipped"
    assert names(explorer) == []
    explorer.filters.clear.click()
    assert len(names(explorer)) == 5
    assert explorer.error.value == ""


def test_no_similar_button_without_an_embedding(explorer, run_with_embeddings):
    """For an item without an embedding there is no Similar button."""
    explorer.card_grid.slots[0].button.click()
    assert explorer.similar.layout.display == "none"
    other = lm.Explorer(run_with_embeddings)
    other.card_grid.slots[4].button.click()
    assert other.similar.layout.display == "none"
