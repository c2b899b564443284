"""The views of `lightmeter ui` against the accessibility rules of axe."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from lightmeter.ui.web.run_views import run_views


@pytest.mark.parametrize("view", ["explorer", "planner", "review", "run"])
def test_views_are_accessible(run, serve_views, page, view):
    """No view has a serious problem of accessibility, in light and dark, on a wide and on a narrow screen."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.goto(f"{serve_views(run_views(run.folder))}#{view}")
    expect(page.locator("main")).not_to_have_text("Loading …", timeout=30_000)
    expect(page.locator("main h2, main .lm-position, main h1").first).to_be_visible(timeout=30_000)
    for scheme in ("light", "dark"):
        for width in (1200, 390):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            found = [one for one in axe.run(page).response["violations"] if one["impact"] in {"serious", "critical"}]
            assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
