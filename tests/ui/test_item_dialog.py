"""The dialog with the details of an item, in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

import lightmeter as lm
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.facts.columns import KEY_COLUMNS
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import field_of
from lightmeter.ui.web import web_server
from lightmeter.ui.web.web_server import WebView
from tests.tables.replace_table import replace_table
from tests.ui.conftest import DATA
from tests.ui.item_runs import (
    LOGO,
    POLYGON,
    UPRIGHT,
    ItemView,
    item_module,
    item_style,
    placed_run,
    run_against_placing_service,
    write_media,
)

NEAR_PX = 2


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    """The folder of a run with boxes at known places; tests do not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_API_KEY", "any")
        yield placed_run(tmp_path_factory.mktemp("placed"))


@pytest.fixture
def open_item(serve_views, page, monkeypatch):
    """A function that opens the dialog of an item of a run in a folder, and waits for its results."""
    monkeypatch.setattr(web_server, "module_source", item_module)
    monkeypatch.setattr(web_server, "style_source", item_style)

    def show(folder: Path, item_ids: list[str]) -> Page:
        page.goto(serve_views({"explorer": WebView("Items", lambda: ItemView(folder, item_ids))}))
        page.get_by_role("button", name=item_ids[0], exact=True).click()
        expect(page.get_by_text("Facts", exact=True)).to_be_visible(timeout=30_000)
        return page

    return show


def assert_box_at(page: Page, kind: str, corners: list[tuple[float, float]]) -> None:
    """Assert that the box of a kind is drawn around these corners, given in shares of the picture."""
    picture = page.locator(".lm-item-picture > img").bounding_box()
    box = page.locator(f".lm-item-box[data-kind={kind}]").evaluate("""(drawn) => {
      const toScreen = drawn.getScreenCTM();
      return [...drawn.points].map((point) => { const at = point.matrixTransform(toScreen); return [at.x, at.y]; });
    }""")
    for drawn, (x, y) in zip(box, corners, strict=True):
        expected = picture["x"] + x * picture["width"], picture["y"] + y * picture["height"]
        assert drawn == pytest.approx(expected, abs=NEAR_PX), kind


def in_shares(corners: list[tuple[int, int]], size: tuple[int, int]) -> list[tuple[float, float]]:
    """Return corners in pixels as shares of the picture."""
    return [(x / size[0], y / size[1]) for x, y in corners]


def serious_problems(page: Page) -> list[str]:
    """Return the serious and critical problems of accessibility that axe finds."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = [one for one in axe.run(page).response["violations"] if one["impact"] in {"serious", "critical"}]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("width_px", [1200, 390])
def test_boxes_lie_on_the_picture(open_item, placed, page, width_px):
    """Boxes in pixels and in shares lie where they were answered, on an EXIF-rotated picture, wide and narrow."""
    page.set_viewport_size({"width": width_px, "height": 900})
    open_item(placed, ["turned"])
    picture = page.locator(".lm-item-picture > img")
    expect(picture).to_be_visible(timeout=30_000)
    box = picture.bounding_box()
    assert box["height"] / box["width"] == pytest.approx(UPRIGHT[1] / UPRIGHT[0], abs=0.02)
    assert_box_at(page, "text", in_shares(POLYGON, UPRIGHT))
    assert_box_at(page, "brand", in_shares(LOGO, UPRIGHT))
    assert_box_at(page, "face", [(0.25, 0.5), (0.75, 0.5), (0.75, 0.75), (0.25, 0.75)])
    assert page.evaluate("document.documentElement.scrollWidth") <= width_px
    expect(page.get_by_text("text: STOP <b>", exact=True)).to_be_visible()
    assert page.locator(".lm-item b:not(.lm-item-state b)").count() == 0
    assert serious_problems(page) == []


def test_toggles_of_boxes(open_item, placed, page):
    """Each kind and each back end has a toggle for its boxes, and a line of its own color and dashes."""
    open_item(placed, ["turned"])
    boxes = page.locator(".lm-item-box")
    expect(boxes).to_have_count(3, timeout=30_000)
    styles = boxes.evaluate_all("(all) => all.map((box) => [box.dataset.source, box.getAttribute('stroke'), "
                                "box.getAttribute('stroke-dasharray')].join(' '))")  # fmt: skip
    assert len(set(styles)) == 2
    page.get_by_label("Faces (1)").uncheck()
    expect(boxes).to_have_count(2)
    expect(page.get_by_label("Faces (1)")).to_be_focused()
    page.get_by_label("two (1)").uncheck()
    expect(boxes).to_have_count(1)
    expect(page.get_by_text("brand: Acme", exact=True)).to_be_visible()
    page.get_by_label("Labels").uncheck()
    expect(page.get_by_text("brand: Acme", exact=True)).to_have_count(0)


def test_tags_of_back_ends_side_by_side(open_item, placed, page):
    """A column for each back end, how many agree, and an order by any column."""
    open_item(placed, ["turned"])
    tags = page.get_by_role("table", name="Tags by back end")
    names = tags.locator("tbody th")
    expect(names).to_have_text(["cat", "<b>zoo"])
    expect(tags.locator("tbody tr").first).to_contain_text("2 of 2")
    tags.get_by_role("button", name="two").click()
    expect(names).to_have_text(["<b>zoo", "cat"])
    expect(tags.get_by_role("columnheader", name="two")).to_have_attribute("aria-sort", "descending")
    tags.get_by_role("button", name="tag").click()
    tags.get_by_role("button", name="tag").click()
    expect(names).to_have_text(["cat", "<b>zoo"])


def test_frames_of_a_video(open_item, placed, page):
    """A click on a frame shows its picture, its rows and its boxes; the strip has pictures and times."""
    open_item(placed, ["clip"])
    expect(page.locator(".lm-item-frame img")).to_have_count(4, timeout=30_000)
    expect(page.locator(".lm-item-box")).to_have_count(0)
    expect(page.get_by_text("Choose a frame to see the boxes on it.")).to_be_visible()
    frame = page.get_by_role("button", name="Frame 1 at 1 s")
    frame.click()
    expect(frame).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".lm-item-box")).to_have_count(1, timeout=30_000)
    assert_box_at(page, "face", in_shares([(80, 30), (120, 30), (120, 90), (80, 90)], (160, 120)))
    expect(page.get_by_role("table", name="Tags by back end").locator("tbody th")).to_have_text(["light"])
    assert serious_problems(page) == []


@pytest.mark.sweep
def test_frames_that_were_sent_in_place_of_a_video(open_item, tmp_path, page, monkeypatch):
    """A video whose frames were sent as images has no results as a whole: its first frame is shown."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "any")
    open_item(placed_run(tmp_path, video="frames", capture_interval=2), ["clip"])
    expect(page.get_by_role("button", name="Frame 0 at 0 s")).to_have_attribute("aria-pressed", "true", timeout=30_000)
    expect(page.get_by_role("button", name="Frame 1 at 2 s")).to_be_visible()
    expect(page.get_by_role("table", name="Tags by back end").locator("tbody th")).to_have_text(["cat", "<b>zoo"])


def test_nsfw_is_blurred_until_asked(open_item, placed, page):
    """A picture that is likely NSFW is blurred, without boxes, until the user asks for it, once for each item."""
    open_item(placed, ["clip", "naked", "turned"])
    page.keyboard.press("ArrowRight")
    picture = page.locator(".lm-item-picture > img")
    expect(picture).to_have_attribute("alt", "naked.jpg, blurred", timeout=30_000)
    assert picture.evaluate("(img) => img.decode().then(() => Math.max(img.naturalWidth, img.naturalHeight))") <= 8
    assert page.locator(".lm-item-box").count() == 0
    page.get_by_role("button", name="Show the picture").click()
    expect(picture).to_have_attribute("alt", "naked.jpg")
    expect(page.locator(".lm-item-box")).to_have_count(3)
    page.keyboard.press("ArrowRight")
    expect(picture).to_have_attribute("alt", "turned.jpg", timeout=30_000)
    page.keyboard.press("ArrowLeft")
    expect(picture).to_have_attribute("alt", "naked.jpg, blurred", timeout=30_000)


def test_dialog_by_keyboard(open_item, placed, page):
    """The focus stays in the dialog; arrows show other items; Escape closes it and gives the focus back."""
    open_item(placed, ["turned", "again", "gone"])
    for _ in range(30):
        page.keyboard.press("Tab")
        assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Duplicate of")).to_be_visible(timeout=30_000)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".lm-item-stage")).to_contain_text("No such file", timeout=30_000)
    expect(page.get_by_text("skipped", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("#log")).to_have_text("closed")
    expect(page.get_by_role("button", name="turned", exact=True)).to_be_focused()


def test_duplicate_links_to_its_original(open_item, placed, page):
    """The details of a duplicate link to the item whose results it has; the caller can close the dialog."""
    open_item(placed, ["again"])
    page.get_by_role("button", name="turned", exact=True).click()
    expect(page.get_by_text("Duplicate of")).to_have_count(0, timeout=30_000)
    expect(page.get_by_text("turned shelf")).to_be_visible()
    page.evaluate("window.closeItem()")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("#log")).to_have_text("")


def test_values_of_the_user_keep_their_digits(open_item, tmp_path, page, monkeypatch):
    """Own columns, also one named as a column of a table, and answers to a question are shown with all their digits.

    The names of these columns are shown as they are written.
    """
    monkeypatch.setenv("LIGHTMETER_API_KEY", "any")
    write_media(tmp_path)
    own = {"lat": 52.520008, "price": 1249.99, "post": 1212092628029698048, "severity": "minor", "duplicate_url": "u"}
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text(json.dumps({"id": "naked", "path": str(tmp_path / "naked.jpg"), **own}), encoding="utf-8")
    run_against_placing_service(manifest, tmp_path / "out")
    answers = pa.schema([*map(field_of, KEY_COLUMNS), ("list_price", pa.float64()), ("plates", pa.list_(pa.int64()))])
    with replace_table(Dataset(tmp_path / "out"), "answers_shop", answers) as part:
        part.write(pa.table({"item_id": ["naked"], "list_price": [1249.99], "plates": [[2**53 + 1]]}))
    open_item(tmp_path / "out", ["naked"])
    rows = page.get_by_role("table", name="Columns of the manifest").locator("tr")
    expect(rows).to_have_text([f"{name}{value}" for name, value in own.items()])
    expect(page.get_by_role("table", name="Answers: shop").locator("th")).to_have_text(["list_price", "plates"])
    cells = page.get_by_role("table", name="Answers: shop").locator("tbody td")
    expect(cells).to_have_text(["1249.99", '["9007199254740993"]'])
    page.get_by_text("Facts", exact=True).click()
    expect(page.get_by_role("table", name="Facts")).to_contain_text("highest NSFW severity0.97")
    expect(page.get_by_text("Blurred: it is likely NSFW.")).to_be_visible()


def test_item_that_does_not_exist(open_item, placed, page, serve_views):
    """The reason why details cannot be read is in a visible line."""
    page.goto(serve_views({"explorer": WebView("Items", lambda: ItemView(placed, ["none"]))}))
    page.get_by_role("button", name="none", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The run has no item 'none'.", timeout=30_000)


@pytest.mark.sweep
def test_details_of_urls(open_item, tmp_path, page, monkeypatch):
    """A URL has a link; when its server has ended, the kept thumbnail is shown with its boxes and the reason.

    The frames of a video that is not on this machine have times and rows, and the reason why they have no pictures.
    """
    monkeypatch.setenv("LIGHTMETER_API_KEY", "any")
    write_media(tmp_path)
    with serve_folder(tmp_path) as url:
        locations = [f"{url}/turned.jpg", f"{url}/clip.avi"]
        run_against_placing_service(locations, tmp_path / "out")
        rows = lm.Run(tmp_path / "out").table("assets").to_pylist()
        picture, video = (next(row["item_id"] for row in rows if row["url"] == location) for location in locations)
        open_item(tmp_path / "out", [picture, video])
        expect(page.locator(".lm-item-box")).to_have_count(3, timeout=30_000)
        expect(page.get_by_text("Only the kept thumbnail")).to_have_count(0)
        assert page.locator(".lm-item-picture > img").evaluate("(img) => img.naturalHeight") == UPRIGHT[1]
    link = page.get_by_role("link", name="Open original")
    expect(link).to_have_attribute("href", locations[0])
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noreferrer")
    page.reload()
    page.get_by_role("button", name=picture, exact=True).click()
    expect(page.get_by_text("Only the kept thumbnail: no connection")).to_be_visible(timeout=30_000)
    assert_box_at(page, "text", in_shares(POLYGON, UPRIGHT))
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("The video is not on this machine").first).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Frame 1 at 1 s").click()
    expect(page.get_by_role("table", name="Tags by back end").locator("tbody th")).to_have_text(["light"])


@pytest.mark.sweep
def test_boxes_of_local_back_ends(open_item, tmp_path, page):
    """The texts and brands that the embedded service finds are drawn inside the picture."""
    plan = lm.plan([DATA / "media" / "cameras.jpg"], features=["texts", "brands", "faces"], budget=20)
    run = lm.run(plan, tmp_path / "out")
    open_item(run.folder, list(run.table("assets")["item_id"].to_pylist()))
    expect(page.locator(".lm-item-box[data-kind=text]")).to_have_count(3, timeout=30_000)
    (brand,) = run.table("brands").to_pylist()
    assert_box_at(page, "brand", [(corner["x"] / 1024, corner["y"] / 553) for corner in brand["polygon"]])


def test_details_of_a_real_run(open_item, run, page):
    """Results of the embedded service, facts and the request of an item are shown; a local file has no link."""
    open_item(run.folder, ["chelsea"])
    expect(page.locator(".lm-item-picture > img")).to_be_visible(timeout=30_000)
    page.get_by_text("Request", exact=True).click()
    expect(page.get_by_role("table", name="Request")).to_contain_text(re.compile("http status ?200"))
    expect(page.get_by_role("table", name="Columns of the manifest")).to_contain_text("cat")
    assert page.get_by_role("link", name="Open original").count() == 0
    expect(page.locator(".lm-item-status code")).to_contain_text("chelsea.jpg")
