"""What a person does with the widgets: each function uses every control of one widget in an open browser tab."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

WAIT_MS = 120_000
FILES = ["cameras.jpg", "chelsea.jpg", "samoyed.mp4"]
"""The items of the gallery that `use_explorer` uses, in the order of the manifest."""


def use_explorer(tab: Page) -> None:
    """Filter, sort, save a view and look at details; at the end chelsea and samoyed are selected, nothing filtered."""
    root = tab.locator(".lm-explorer")
    expect(root.locator(".lm-position")).to_have_text("3 items", timeout=WAIT_MS)
    _use_facets(root)
    _use_brush_and_color(root)
    _use_order_and_views(root)
    _use_details(tab, root)
    _use_selection(tab, root)


def _expect_items(root: Locator, *names: str) -> None:
    expect(root.locator(".lm-card .lm-name")).to_have_text(list(names), timeout=WAIT_MS)


def _use_facets(root: Locator) -> None:
    root.get_by_label("Find a tag").fill("CA")
    root.locator(".lm-found").get_by_label("cat, 1 item").check()
    _expect_items(root, "chelsea.jpg")
    root.get_by_label("Find a tag").fill("")
    root.get_by_role("group", name="Tags").get_by_label("cat, 1 item").uncheck()
    _expect_items(root, *FILES)
    for label, name in (("video, 1 item", "samoyed.mp4"), ("cat, 1 item", "chelsea.jpg")):
        box = root.get_by_label(label, exact=True).last  # the last: of the column `subject`, not the tag
        box.check()
        _expect_items(root, name)
        box.uncheck()
    root.get_by_label("ok, 3 items", exact=True).check()
    root.get_by_role("group", name="Back end").get_by_role("checkbox").first.check()
    expect(root.locator(".lm-position")).to_have_text(re.compile(r"^\d+( of 3)? items?$"), timeout=WAIT_MS)
    root.get_by_role("button", name="Clear filters").click()
    _expect_items(root, *FILES)


def _use_brush_and_color(root: Locator) -> None:
    low, high = root.get_by_label("Lowest NSFW severity"), root.get_by_label("Highest NSFW severity")
    low.focus()
    for _ in range(4):
        low.press("ArrowRight")
    _expect_items(root, "samoyed.mp4")
    low.press("Home")
    high.focus()
    for _ in range(17):
        high.press("ArrowLeft")
    _expect_items(root, *FILES[:2])
    high.press("End")
    _expect_items(root, *FILES)
    root.get_by_label("Color name or #rrggbb").fill("reddish")
    root.get_by_label("Color name or #rrggbb").press("Enter")
    expect(root.get_by_text("'reddish' is no color")).to_be_visible(timeout=WAIT_MS)
    root.get_by_label("Pick a color").fill("#a54b24")
    expect(root.get_by_text("'reddish' is no color")).to_be_hidden(timeout=WAIT_MS)
    distance = root.get_by_label("How near the color is")
    distance.select_option(index=distance.locator("option").count() - 1)
    expect(root.locator(".lm-position")).to_contain_text("of 3 items", timeout=WAIT_MS)
    root.get_by_role("button", name="Clear filters").click()
    _expect_items(root, *FILES)


def _use_order_and_views(root: Locator) -> None:
    root.get_by_label("Sort by").select_option("NSFW severity")
    expect(root.locator(".lm-name").first).to_have_text("samoyed.mp4", timeout=WAIT_MS)
    root.get_by_role("button", name="largest first").click()
    expect(root.locator(".lm-name").last).to_have_text("samoyed.mp4", timeout=WAIT_MS)
    root.get_by_role("group", name="Tags").get_by_label("cat, 1 item").check()
    _expect_items(root, "chelsea.jpg")
    root.get_by_label("Name of this view").fill("cats")
    root.get_by_role("button", name="Save view").click()
    expect(root.get_by_role("button", name="Delete view")).to_be_visible(timeout=WAIT_MS)
    root.get_by_role("button", name="Clear filters").click()
    root.get_by_label("Sort by").select_option(index=0)
    _expect_items(root, *FILES)
    root.get_by_label("Saved views").select_option("")
    root.get_by_label("Saved views").select_option("cats")
    _expect_items(root, "chelsea.jpg")
    root.get_by_role("button", name="Delete view").click()
    expect(root.get_by_role("button", name="Delete view")).to_be_hidden(timeout=WAIT_MS)
    root.get_by_role("button", name="Clear filters").click()
    root.get_by_label("Sort by").select_option(index=0)
    _expect_items(root, *FILES)
    root.get_by_role("button", name="Show pictures similar to chelsea.jpg").click()
    expect(root.locator(".lm-position")).to_contain_text("most like chelsea.jpg", timeout=WAIT_MS)
    root.get_by_role("button", name="Clear filters").click()
    _expect_items(root, *FILES)


def _use_details(tab: Page, root: Locator) -> None:
    """Open the details of the first picture, whose texts have boxes; go on to the video, and close the details."""
    root.get_by_role("button", name="Details of cameras.jpg").click()
    dialog = tab.get_by_role("dialog")
    texts = dialog.locator(".lm-item-box[data-kind=text]")
    expect(texts).to_have_count(3, timeout=WAIT_MS)
    dialog.get_by_label("Labels").uncheck()
    dialog.get_by_label("Texts (3)").uncheck()
    expect(texts).to_have_count(0)
    dialog.get_by_label("Texts (3)").check()
    expect(texts).to_have_count(3)
    dialog.get_by_role("table", name="Tags by back end").get_by_role("button", name="tag").click()
    dialog.get_by_text("Request", exact=True).click()
    expect(dialog.get_by_role("table", name="Request")).to_be_visible()
    for _ in range(2):
        tab.keyboard.press("ArrowRight")
    expect(dialog).to_contain_text("samoyed.mp4", timeout=WAIT_MS)
    frame = dialog.get_by_role("button", name=re.compile("^Frame 1 at"))
    frame.click(timeout=WAIT_MS)
    expect(frame).to_have_attribute("aria-pressed", "true")
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("dialog")).to_have_count(0)


def _use_selection(tab: Page, root: Locator) -> None:
    root.get_by_label("Show blurred pictures").check()
    root.get_by_role("button", name="Select all shown").click()
    expect(root.get_by_text("3 items selected")).to_be_visible(timeout=WAIT_MS)
    root.get_by_role("button", name="Clear selection").click()
    expect(root.get_by_text("3 items selected")).to_have_count(0)
    root.get_by_label("Select chelsea.jpg").check()
    root.get_by_role("button", name="Details of chelsea.jpg").focus()
    tab.keyboard.press("Shift+ArrowRight")
    expect(root.get_by_text("2 items selected")).to_be_visible(timeout=WAIT_MS)


def use_planner(tab: Page, rows: int) -> None:
    """Change each option, plan, spend, stop the run, and spend the rest of a manifest whose rows cost a credit each."""
    root = tab.locator(".lm-planner")

    def button(name: str) -> Locator:
        return root.get_by_role("button", name=name, exact=True)

    spend = root.get_by_role("button", name=re.compile("^Spend up to"))
    expect(button("Plan")).to_be_enabled(timeout=WAIT_MS)
    expect(spend).to_have_count(0)
    root.get_by_label("descriptions").check()
    root.get_by_label("Role").select_option("critic")
    root.get_by_label("Language").fill("Dutch")
    root.get_by_label("Prompt").fill("What is it?")
    root.get_by_label("descriptions").uncheck()
    button("Plan").click()
    expect(spend).to_be_visible(timeout=WAIT_MS)
    _change_options(root)
    expect(spend).to_have_count(0)
    button("Read the manifest again").click()
    expect(spend).to_have_text(re.compile(f"^Spend up to {rows} credits"), timeout=WAIT_MS)
    root.get_by_label("Price by column").select_option("half")
    expect(root.get_by_role("region", name="Price by half").locator("tbody tr")).to_have_count(2, timeout=WAIT_MS)
    spend.click()
    expect(root.locator(".lm-burn")).to_be_visible(timeout=WAIT_MS)
    button("Stop").click()
    expect(root.get_by_text("Nothing is lost")).to_be_visible(timeout=WAIT_MS)
    button("Plan").click()
    expect(root.get_by_text("The run continues where it stopped.")).to_be_visible(timeout=WAIT_MS)
    spend.click(timeout=WAIT_MS)
    expect(root.get_by_text(f"Done: {rows} ok.")).to_be_visible(timeout=WAIT_MS)


def _change_options(root: Locator) -> None:
    """Change each option of the form, and change all back, so that each row costs one credit."""
    price = root.locator(".lm-big")
    before = price.inner_text()
    for label, value in (
        ("Frames per video, 0: all", "3"),
        ("Seconds between frames", "2"),
        ("Least tag score", "0.5"),
    ):
        root.get_by_label(label).fill(value)
    root.get_by_label("Duplicates", exact=True).select_option("near")
    root.get_by_label("Rows to pay first").select_option("random")
    root.get_by_label("Seed").fill("7")
    root.get_by_label("Cap what is spent").uncheck()
    expect(root.get_by_text("No budget")).to_be_visible(timeout=WAIT_MS)
    root.get_by_label("Cap what is spent").check()
    root.get_by_label("Budget in credits").fill("")
    expect(root.get_by_text("A whole number, 0 or more.").and_(root.locator(":visible"))).to_be_visible(timeout=WAIT_MS)
    root.get_by_label("Budget in credits").fill("500")
    root.get_by_label("Duplicates", exact=True).select_option("off")
    root.get_by_label("Rows to pay first").select_option("order")
    expect(price).to_have_text(before, timeout=WAIT_MS)


def use_review(tab: Page) -> None:
    """Decide about the items of `test_review.copy_of` as `ann`: chelsea is rejected, coffee unsure, the others kept."""
    root = tab.locator(".lm-review")
    large, decided = root.locator(".lm-large img"), root.locator(".lm-progress-text b")
    expect(decided).to_have_text("0 of 3 decided", timeout=WAIT_MS)
    user = root.get_by_role("textbox", name="Reviewer")
    user.fill("ann")
    user.press("Tab")
    slider = root.get_by_role("slider", name="Threshold of red")
    slider.press("End")
    expect(decided).to_have_text("0 of 2 decided", timeout=WAIT_MS)
    slider.fill("0.5")
    for name, value in (("First", "disagreement"), ("Show", "disputed"), ("State", "undecided")):
        root.get_by_role("combobox", name=name, exact=True).select_option(value)
    expect(decided).to_have_text("0 of 2 decided", timeout=WAIT_MS)
    for name in ("First", "Show", "State"):
        root.get_by_role("combobox", name=name, exact=True).select_option(index=0)
    expect(decided).to_have_text("0 of 3 decided", timeout=WAIT_MS)
    _decide_by_keyboard(tab, root)
    root.get_by_role("checkbox", name="Blur pictures until asked").uncheck()
    expect(large).not_to_have_attribute("alt", re.compile("blurred"), timeout=WAIT_MS)
    root.get_by_role("combobox", name="Show", exact=True).select_option("all")
    root.get_by_role("combobox", name="Undecided items").select_option("above")
    root.get_by_role("combobox", name="Decision").select_option("keep")
    root.get_by_role("button", name="Decide all").click()
    root.get_by_role("button", name="Keep 1 item").click(timeout=WAIT_MS)
    expect(root.locator(".lm-progress-text")).to_contain_text("1 keep", timeout=WAIT_MS)
    root.get_by_text("Which back end can be dropped?").click()
    expect(root.get_by_role("row", name="palette colors")).to_be_visible(timeout=WAIT_MS)


def _decide_by_keyboard(tab: Page, root: Locator) -> None:
    """Reject chelsea, decide and undo about coffee, and call coffee unsure with a note, by keyboard alone."""
    large, decided = root.locator(".lm-large img"), root.locator(".lm-progress-text b")
    root.locator(".lm-stage").focus()
    expect(large).to_have_attribute("alt", "chelsea.jpg, blurred", timeout=WAIT_MS)
    tab.keyboard.press("b")
    expect(large).to_have_attribute("alt", "chelsea.jpg", timeout=WAIT_MS)
    tab.keyboard.press("d")
    expect(tab.get_by_role("dialog")).to_contain_text("chelsea.jpg", timeout=WAIT_MS)
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("dialog")).to_have_count(0)
    tab.keyboard.press("r")
    expect(large).to_have_attribute("alt", "coffee.jpg, blurred", timeout=WAIT_MS)
    tab.keyboard.press("k")
    expect(decided).to_have_text("2 of 3 decided", timeout=WAIT_MS)
    tab.keyboard.press("z")
    expect(decided).to_have_text("1 of 3 decided", timeout=WAIT_MS)
    expect(large).to_have_attribute("alt", "coffee.jpg, blurred", timeout=WAIT_MS)
    tab.keyboard.press("n")
    tab.keyboard.type("kitchen")
    tab.keyboard.press("Escape")
    tab.keyboard.press("u")
    expect(decided).to_have_text("2 of 3 decided", timeout=WAIT_MS)
