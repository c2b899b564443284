"""The gallery in a real browser, by mouse and by keyboard."""

from __future__ import annotations

import re
import shutil
import threading

import pyarrow as pa
import pytest
from playwright.sync_api import expect

import lightmeter as lm
from lightmeter.api.blocking import wait_for
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.ui.gallery.explorer import ExplorerView
from lightmeter.ui.gallery.gallery import Gallery
from lightmeter.ui.web.web_server import WebView
from tests.tables.replace_table import replace_table, replace_tables
from tests.ui.kernels import wait_until


@pytest.fixture
def open_gallery(serve_views, page):
    """A function that opens the gallery of a run in the browser, and returns its view-model."""

    def show(run) -> ExplorerView:
        views: list[ExplorerView] = []
        page.goto(serve_views({"explorer": WebView("Gallery", lambda: views.append(ExplorerView(run)) or views[-1])}))
        expect(page.locator(".lm-position")).to_contain_text("item", timeout=30_000)
        return views[-1]

    return show


def position(page):
    return page.locator(".lm-position")


def names(page):
    return page.locator(".lm-card .lm-name")


def test_pictures_of_a_run_are_shown(run, open_gallery, page):
    """The page shows one card with a picture for each item, and the reason where there is none."""
    open_gallery(run)
    expect(page.locator(".lm-shot img")).to_have_count(4, timeout=30_000)
    expect(page.locator(".lm-card")).to_have_count(5)
    assert page.locator(".lm-card b").count() == 0


def test_facets_filter_and_follow_each_other(run, open_gallery, page):
    """A click on a value shows its items; the counts of the other facets follow; Clear shows all again."""
    open_gallery(run)
    expect(position(page)).to_have_text("5 items")
    page.get_by_role("group", name="Tags").get_by_label("cat, 2 items").check()
    expect(position(page)).to_have_text("2 of 5 items")
    expect(names(page)).to_have_text(["chelsea.jpg", "chelsea.jpg"])
    expect(page.get_by_label("skipped, 0 items", exact=True)).to_be_visible()
    page.get_by_label("duplicate, 1 item", exact=True).check()
    expect(position(page)).to_have_text("1 of 5 items")
    page.get_by_role("button", name="Clear filters").click()
    expect(names(page)).to_have_count(5)


@pytest.fixture
def slow_searches(monkeypatch):
    """A semaphore that lets one search pass for each time it is released, and a list of the searches begun."""
    gate, searches, show = threading.Semaphore(1), [], Gallery.show

    def show_later(gallery, *filters_and_sort):
        searches.append(filters_and_sort)
        gate.acquire()
        return show(gallery, *filters_and_sort)

    monkeypatch.setattr(Gallery, "show", show_later)
    return gate, searches


def test_choices_during_a_search_are_kept(run, open_gallery, page, slow_searches):
    """Values chosen while an earlier choice is still being searched add up, and stay ticked when its result comes."""
    gate, searches = slow_searches
    view = open_gallery(run)
    tags = page.get_by_role("group", name="Tags")
    try:
        tags.get_by_label(re.compile("^cat,")).check()
        wait_until(lambda: len(searches) == 2, "the first choice is not searched")
        tags.get_by_label(re.compile("^coffee,")).check()
        wait_until(lambda: view.filters["tags"] == ["cat", "coffee"], "a tag is lost")
        gate.release()
        expect(position(page)).to_have_text("2 of 5 items")
        expect(tags.get_by_label(re.compile("^coffee,"))).to_be_checked()
        page.get_by_label(re.compile("^ok,")).check()
        page.get_by_label(re.compile("^image,")).check()
        chosen = {"tags": ["cat", "coffee"], "values": {"status": ["ok"], "kind": ["image"]}}
        wait_until(lambda: view.filters == chosen, "a value is lost")
    finally:
        gate.release(100)
    expect(names(page)).to_have_text(["chelsea.jpg", "coffee.jpg"])


def test_a_color_chosen_during_a_search_stays_in_its_fields(run, open_gallery, page, slow_searches):
    """The result of an earlier search does not put the earlier color back into the fields of the color."""
    gate, searches = slow_searches
    view = open_gallery(run)
    color = page.get_by_label("Color name or #rrggbb")
    try:
        color.fill("#a54b24")
        color.press("Enter")
        wait_until(lambda: len(searches) == 2, "the first color is not searched")
        color.fill("#4a7fb5")
        color.press("Enter")
        wait_until(lambda: view.filters["color"]["color"] == "#4a7fb5", "the second color is lost")
        page.get_by_label("Find a tag").focus()
        gate.release()
        wait_until(lambda: view.result["version"] == 2, "the first search does not end")
        expect(position(page)).to_have_text("4 of 5 items")
        expect(color).to_have_value("#4a7fb5")
        expect(page.get_by_label("Pick a color")).to_have_value("#4a7fb5")
    finally:
        gate.release(100)


def test_tags_are_found_by_a_part(run, open_gallery, page):
    """Typed text finds tags on the server; a found tag is chosen with the keyboard alone."""
    open_gallery(run)
    page.get_by_label("Find a tag").fill("COFF")
    found = page.locator(".lm-found").get_by_label("coffee, 1 item")
    expect(found).to_be_visible()
    page.keyboard.press("Tab")
    expect(found).to_be_focused()
    page.keyboard.press("Space")
    expect(names(page)).to_have_text(["coffee.jpg"])
    expect(found).to_be_focused()


def test_search_shows_only_tags_that_match(run, open_gallery, page):
    """While a text is in the field, only matching and chosen tags are listed; without a match only a sentence is."""
    open_gallery(run)
    tags = page.get_by_role("group", name="Tags")
    tags.get_by_label("cat, 2 items").check()
    page.get_by_label("Find a tag").fill("coff")
    listed = tags.get_by_role("checkbox")
    expect(listed).to_have_count(2)
    assert [box.get_attribute("aria-label") for box in listed.all()] == ["coffee, 1 item", "cat, 2 items"]
    page.get_by_label("Find a tag").fill("no such tag")
    expect(tags.get_by_text("No tag contains this text.")).to_be_visible()
    expect(listed).to_have_count(0)
    page.get_by_label("Find a tag").fill("")
    expect(tags.get_by_label("cat, 2 items")).to_be_checked()
    expect(tags.get_by_text("No tag contains this text.")).to_have_count(0)


def test_severity_brush_works_by_keyboard(run, open_gallery, page):
    """The handles of the histogram move by arrow keys; the range counts and filters."""
    view = open_gallery(run)
    low = page.get_by_label("Lowest NSFW severity")
    low.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(names(page)).to_have_text(["samoyed.mp4"])
    assert view.filters["severity"] == [0.2, 1]
    page.keyboard.press("Home")
    expect(position(page)).to_have_text("5 items")


@pytest.mark.sweep
def test_color_sort_and_errors(run, open_gallery, page):
    """A color shows the nearest first; an invalid color shows an error line; the order can be chosen."""
    open_gallery(run)
    color = page.get_by_label("Color name or #rrggbb")
    color.fill("#a54b24")
    color.press("Enter")
    expect(names(page).first).to_have_text("coffee.jpg")
    color.fill("reddish")
    color.press("Enter")
    expect(page.get_by_text("'reddish' is no color")).to_be_visible()
    expect(position(page)).to_contain_text("of 5 items (of the last valid filters)")
    color.fill("")
    color.press("Enter")
    expect(position(page)).to_have_text("5 items")
    page.get_by_label("Sort by").select_option("NSFW severity")
    expect(names(page).first).to_have_text("samoyed.mp4")
    page.get_by_role("button", name="largest first").click()
    expect(names(page).nth(2)).not_to_have_text("samoyed.mp4")


def test_reload_keeps_filters_and_order(run, tmp_path, open_gallery, page):
    """A reload keeps what the page had set last, also by a saved view; another tab starts without it."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    open_gallery(out).save_view("all")
    page.get_by_role("group", name="Tags").get_by_label("cat, 2 items").check()
    page.get_by_label("Sort by").select_option("Address")
    page.get_by_role("button", name="smallest first").click()
    expect(page.get_by_role("button", name="largest first")).to_be_visible()
    page.reload()
    expect(position(page)).to_have_text("2 of 5 items")
    expect(page.get_by_role("button", name="largest first")).to_be_visible()
    expect(page.get_by_label("Sort by")).to_have_value("column:url")
    other = page.context.new_page()
    other.goto(page.url)
    expect(position(other)).to_have_text("5 items")
    page.get_by_label("Saved views").select_option("all")
    expect(position(page)).to_have_text("5 items")
    page.reload()
    expect(position(page)).to_have_text("5 items")


def test_selection_by_mouse_arrives_in_python(run, open_gallery, page):
    """Checkboxes and Shift-clicks select items, and a selection set in Python is shown."""
    view = open_gallery(run)
    boxes = page.locator(".lm-check input")
    boxes.nth(1).check()
    expect(page.get_by_text("1 item selected")).to_be_visible()
    boxes.nth(3).click(modifiers=["Shift"])
    expect(page.get_by_text("3 items selected")).to_be_visible()
    wait_until(lambda: sorted(view.selection) == ["again", "coffee", "samoyed"], "the selection is not in Python")
    assert view.rows().column("item_id").to_pylist() == ["coffee", "samoyed", "again"]
    view.selection = ["chelsea"]
    expect(boxes.nth(0)).to_be_checked()
    expect(boxes.nth(1)).not_to_be_checked()
    page.get_by_role("button", name="Clear selection").click()
    expect(boxes.nth(0)).not_to_be_checked()
    wait_until(lambda: view.selection == [], "the selection is not cleared in Python")


def test_keys_that_the_page_explains_have_an_effect(run, tmp_path, open_gallery, page):
    """The key S for similar pictures is explained only if the run has embeddings."""
    open_gallery(run)
    expect(page.get_by_text("Arrow keys move")).to_be_visible()
    expect(page.get_by_text("similar pictures")).to_have_count(0)
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    with replace_table(Dataset(out), "embeddings", schema("embeddings")) as part:
        part.write(pa.table({"item_id": ["chelsea"], "vector": pa.array([[1.0, 0.0]], pa.list_(pa.float32()))}))
    open_gallery(out)
    expect(page.get_by_text("S shows similar pictures.")).to_be_visible()


def test_keyboard_moves_and_selects(run, open_gallery, page):
    """Arrow keys move between cards, Space selects, Shift with an arrow selects a range."""
    view = open_gallery(run)
    expect(names(page)).to_have_count(5)
    page.locator(".lm-open").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".lm-open").nth(1)).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_text("1 item selected")).to_be_visible()
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_text("2 items selected")).to_be_visible()
    wait_until(lambda: sorted(view.selection) == ["coffee", "samoyed"], "the selection is not in Python")
    page.keyboard.press("End")
    expect(page.locator(".lm-open").nth(4)).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator(".lm-open").first).to_be_focused()


@pytest.mark.sweep
def test_views_are_saved_and_opened(run, tmp_path, open_gallery, page):
    """A view is saved under a name, opened again, and deleted; an empty name shows an error."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    view = open_gallery(out)
    page.get_by_role("button", name="Save view").click()
    expect(page.get_by_text("A view needs a name.")).to_be_visible()
    page.get_by_role("group", name="Tags").get_by_label("cat, 2 items").check()
    expect(position(page)).to_have_text("2 of 5 items")
    page.get_by_label("Name of this view").fill("cats")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Delete view")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(position(page)).to_have_text("5 items")
    page.get_by_label("Saved views").select_option("")
    page.get_by_label("Saved views").select_option("cats")
    expect(position(page)).to_have_text("2 of 5 items")
    page.get_by_role("button", name="Delete view").click()
    expect(page.get_by_role("button", name="Delete view")).to_be_hidden()
    assert view.views == {}


def test_unsafe_pictures_are_blurred_until_asked(run, tmp_path, open_gallery, page):
    """A likely unsafe picture is shown with at most 8 pixels until the user chooses to see it."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    nsfw = schema("nsfw")
    with replace_table(Dataset(out), "nsfw", nsfw) as part:
        part.write(pa.table({"item_id": ["chelsea"], "severity": [0.9]}))
    open_gallery(out)
    picture = page.locator(".lm-shot img").first
    expect(picture).to_have_attribute("alt", "chelsea.jpg, blurred", timeout=30_000)
    assert picture.evaluate("image => Math.max(image.naturalWidth, image.naturalHeight)") <= 8
    page.get_by_label("Show blurred pictures").check()
    expect(picture).to_have_attribute("alt", "chelsea.jpg: animal, cat, mammal")
    assert picture.evaluate("image => Math.max(image.naturalWidth, image.naturalHeight)") > 8


def write_items(run, folder, ids):
    """Make a folder with a run whose tables have these items."""
    shutil.copy(run.folder / "journal.sqlite", folder)
    with replace_tables(Dataset(folder), {"assets": schema("assets")}, {}) as writers:
        writers["assets"].write(
            pa.table({"item_id": ids, "url": [f"{item}.jpg" for item in ids], "status": ["ok"] * len(ids)})
        )
    return folder


@pytest.fixture
def many(run, tmp_path):
    """A run folder whose tables have 200,000 items."""
    return write_items(run, tmp_path, [f"i{number}" for number in range(200_000)])


def test_selection_that_is_too_large_is_refused(run, tmp_path, open_gallery, page):
    """A selection whose ids are too long for one message says so, and the gallery stays connected and selects less."""
    view = open_gallery(write_items(run, tmp_path, [f"{number:060}" for number in range(80_000)]))
    expect(position(page)).to_have_text("80,000 items")
    page.get_by_role("button", name="Select all shown").click()
    expect(page.get_by_text("80,000 items are too many to select at a time.")).to_be_visible()
    page.locator(".lm-check input").first.check()
    expect(page.get_by_text("1 item selected")).to_be_visible()
    expect(page.get_by_text("too many to select")).to_have_count(0)
    wait_until(lambda: view.selection == [f"{0:060}"], "the connection is lost")


def test_only_cards_in_view_are_in_the_page(many, open_gallery, page):
    """Of many items only those in view have elements; the last one is reached by the scrollbar and by the keyboard."""
    open_gallery(many)
    expect(position(page)).to_have_text("200,000 items")
    expect(page.locator(".lm-name", has_text="i0.jpg")).to_be_visible()
    assert page.locator(".lm-card").count() < 60
    scroller = page.locator(".lm-scroller")
    scroller.evaluate("element => { element.scrollTop = element.scrollHeight; }")
    expect(page.locator(".lm-name", has_text="i199999.jpg")).to_be_visible()
    assert page.locator(".lm-card").count() < 60
    scroller.evaluate("element => { element.scrollTop = 0; }")
    expect(page.locator(".lm-name", has_text="i0.jpg")).to_be_visible()
    page.locator(".lm-open").first.focus()
    page.keyboard.press("End")
    expect(page.locator(".lm-name", has_text="i199999.jpg")).to_be_visible()


def test_scroll_is_kept_while_the_scrollbar_is_aligned(many, open_gallery, page):
    """A scroll that comes just before the page aligns the scrollbar is not undone."""
    open_gallery(many)
    expect(page.locator(".lm-name", has_text="i0.jpg")).to_be_visible()
    page.locator(".lm-scroller").evaluate(
        """element => {
            const scrollBack = () => {
                const end = performance.now() + 25; // the alignment, 200 ms after a scroll, is due then
                while (performance.now() < end);
                element.scrollTop = 0;
            };
            element.addEventListener("scroll", () => setTimeout(scrollBack, 190), { once: true });
            element.scrollTop = element.scrollHeight;
            return new Promise((resolve) => setTimeout(resolve, 700));
        }"""
    )
    expect(page.locator(".lm-name", has_text="i0.jpg")).to_be_visible()


def test_narrow_pages_do_not_scroll_sideways(run, open_gallery, page):
    """At 390 px nothing is wider than the page, and the filters open on request."""
    page.set_viewport_size({"width": 390, "height": 844})
    open_gallery(run)
    expect(names(page)).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.get_by_label("Find a tag")).to_be_hidden()
    page.get_by_text("Filters", exact=True).click()
    expect(page.get_by_label("Find a tag")).to_be_visible()


def test_a_long_name_of_a_column_does_not_widen_the_page(tmp_path, open_gallery, page):
    """At 320 px, the list of orders is as wide as the page at most, whatever the names of the columns."""
    rows = [{"url": "http://x.example/1.jpg", "name_of_a_column_" * 9: 1}]
    page.set_viewport_size({"width": 320, "height": 844})
    open_gallery(wait_for(lm.aio.run(rows, tmp_path / "out", precheck=False, budget=0)))
    expect(page.get_by_label("Sort by")).to_be_visible(timeout=30_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
