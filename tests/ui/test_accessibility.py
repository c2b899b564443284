"""The views of `lightmeter ui` against the accessibility rules of axe, and the keys of the review.

The keys work on the page everywhere but in text fields, in notebooks inside the widget.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from lightmeter.ui.review.review import ReviewView
from lightmeter.ui.web.run_views import run_views
from lightmeter.ui.web.web_server import WebView
from tests.sweeps import sweep
from tests.ui.test_review import copy_of


# Each light and each width once a day; the sweeps look at the other pairs.
@pytest.mark.parametrize(
    "looks",
    [
        pytest.param((("light", 1200), ("dark", 390)), id="daily"),
        sweep((("dark", 1200), ("light", 390)), name="others"),
    ],
)
@pytest.mark.parametrize("view", ["explorer", "planner", "review", "run"])
def test_views_are_accessible(run, serve_views, page, view, looks):
    """No view has a serious problem of accessibility, in light and dark, on a wide and on a narrow screen."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.goto(f"{serve_views(run_views(run.folder))}#{view}")
    expect(page.locator("main")).not_to_have_text("Loading …", timeout=30_000)
    expect(page.locator("main h2, main h3, main select").first).to_be_visible(timeout=30_000)
    if view == "run":
        expect(page.locator(".lm-state")).to_contain_text("Finished", timeout=20_000)
    for scheme, width in looks:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        found = [one for one in axe.run(page).response["violations"] if one["impact"] in {"serious", "critical"}]
        assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture
def out(run, tmp_path):
    """A folder with a run of its own, whose decisions a test may change."""
    return copy_of(run, tmp_path / "out")


def test_keys_work_after_any_other_control(out, serve_views, page):
    """Keys decide after any other control was used or nothing has the focus; arrows stay with sliders and lists."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out))}))
    large = page.locator(".lm-large img")
    expect(large).to_have_attribute("alt", "chelsea.jpg, blurred", timeout=30_000)
    slider = page.get_by_role("slider", name="Threshold of red")
    slider.press("ArrowRight")
    expect(slider).to_have_value("0.51")
    slider.press("ArrowLeft")
    expect(slider).to_have_value("0.5")
    slider.press("k")
    expect(page.get_by_text("1 of 3 decided")).to_be_visible()
    order = page.get_by_role("combobox", name="First")
    order.press("u")
    expect(page.get_by_text("2 of 3 decided")).to_be_visible()
    order.press("z")
    expect(page.get_by_text("1 of 3 decided")).to_be_visible()
    order.press("ArrowDown")
    expect(order).to_have_value("disagreement")
    page.get_by_role("checkbox", name="Blur pictures until asked").press("r")
    expect(page.get_by_text("2 of 3 decided")).to_be_visible()
    page.get_by_role("textbox", name="Reviewer").press("k")
    page.mouse.click(page.viewport_size["width"] - 2, page.viewport_size["height"] - 2)
    page.keyboard.press("z")
    expect(page.get_by_text("1 of 3 decided")).to_be_visible()


def test_notebook_keys_stay_outside_the_widget(out, serve_views, page):
    """In a notebook, keys decide only while the focus is in the widget."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out))}))
    expect(page.get_by_text("0 of 3 decided")).to_be_visible(timeout=30_000)
    # The widget is drawn anew, in an element that is not that of `lightmeter ui`.
    page.evaluate("document.getElementById('view').id = 'cell'; location.hash = '#review'")
    expect(page.locator(".lm-large img")).to_have_attribute("alt", "chelsea.jpg, blurred", timeout=30_000)
    page.locator("nav a").press("k")
    page.get_by_role("slider", name="Threshold of red").press("ArrowRight")
    expect(page.get_by_text("0 of 3 decided")).to_be_visible()
    page.get_by_role("slider", name="Threshold of red").press("r")
    expect(page.get_by_text("1 reject")).to_be_visible()
    expect(page.get_by_text("0 keep")).to_be_visible()
