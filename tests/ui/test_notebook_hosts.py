"""The widgets in the programs that show notebooks: JupyterLab, voila and marimo, each as a real process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.ui import notebook_hosts

WAIT_MS = 120_000

pytestmark = pytest.mark.sweep  # each takes about half a minute


@pytest.fixture
def tab(chromium) -> Iterator[Page]:
    """A browser tab; scripts of the notebook programs may fail without an effect on the widgets."""
    context = chromium.new_context(viewport={"width": 1300, "height": 1000})
    yield context.new_page()
    context.close()


def filter_by_tag(tab: Page) -> None:
    """Filter the gallery of the run by the tag `cat`, and expect the count and the pictures."""
    expect(tab.locator(".lm-position")).to_have_text("5 items", timeout=WAIT_MS)
    tab.get_by_role("group", name="Tags").get_by_label("cat, 2 items").check()
    expect(tab.locator(".lm-position")).to_have_text("2 of 5 items", timeout=WAIT_MS)
    expect(tab.locator(".lm-card img").first).to_be_visible(timeout=WAIT_MS)


def run_all(tab: Page) -> None:
    """Run all cells of the notebook that JupyterLab shows."""
    tab.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=WAIT_MS)
    tab.get_by_role("menuitem", name="Run", exact=True).click()
    tab.get_by_text("Run All Cells", exact=True).click()


def test_jupyterlab(run, tab, tmp_path):
    """JupyterLab shows the gallery; a filter and a selection by hand arrive in Python; the details open."""
    cells = [
        f"import lightmeter as lm\nexplorer = lm.Explorer({str(run.folder)!r})\nexplorer",
        "print(explorer.rows().column('item_id').to_pylist(), explorer.selection)",
    ]
    with notebook_hosts.jupyterlab(notebook_hosts.write_notebook(tmp_path / "gallery.ipynb", cells)) as url:
        tab.goto(url)
        run_all(tab)
        filter_by_tag(tab)
        tab.locator(".lm-check input").nth(1).check()
        expect(tab.get_by_text("1 item selected")).to_be_visible(timeout=WAIT_MS)
        tab.locator(".jp-CodeCell .cm-content").nth(1).click()
        tab.keyboard.press("Shift+Enter")
        expect(tab.get_by_text("['again'] ['again']")).to_be_visible(timeout=WAIT_MS)
        tab.locator(".lm-open").first.click()
        expect(tab.get_by_role("dialog")).to_contain_text("chelsea.jpg", timeout=WAIT_MS)
        tab.keyboard.press("Escape")
        expect(tab.get_by_role("dialog")).to_have_count(0)


def test_a_planner_spends_and_stops_in_jupyterlab(tab, tmp_path):
    """The planner plans, spends on its own button only, and Stop ends the run while a cell waits for it."""
    (tmp_path / "many.csv").write_text("path\n" + "\n".join([str(notebook_hosts.PICTURE)] * 400))
    options = "out='out', features='tags,faces,texts', duplicates='off', budget=600"
    cells = [
        f"import lightmeter as lm\nplanner = lm.BudgetPlanner('many.csv', {options})\nplanner",
        "planner.wait()",
        "print('stopped:', planner.result.stopped_by)",
    ]
    with notebook_hosts.jupyterlab(notebook_hosts.write_notebook(tmp_path / "plan.ipynb", cells)) as url:
        tab.goto(url)
        tab.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=WAIT_MS)
        tab.locator(".jp-CodeCell .cm-content").first.click()
        tab.keyboard.press("Shift+Enter")
        tab.get_by_role("button", name="Plan", exact=True).click(timeout=WAIT_MS)
        spend = tab.get_by_role("button", name="Spend up to")
        expect(spend).to_be_enabled(timeout=WAIT_MS)
        spend.click()
        tab.locator(".jp-CodeCell .cm-content").nth(1).click()
        tab.keyboard.press("Shift+Enter")
        tab.get_by_role("button", name="Stop", exact=True).click(timeout=WAIT_MS)
        tab.locator(".jp-CodeCell .cm-content").nth(2).click()
        tab.keyboard.press("Shift+Enter")
        expect(tab.get_by_text("stopped: Stopped by the user.")).to_be_visible(timeout=WAIT_MS)


def test_voila(run, tab, tmp_path):
    """Voila shows the gallery, and its filters work."""
    cells = [f"import lightmeter as lm\nlm.Explorer({str(run.folder)!r})"]
    with notebook_hosts.voila(notebook_hosts.write_notebook(tmp_path / "gallery.ipynb", cells)) as url:
        tab.goto(url)
        filter_by_tag(tab)


def test_marimo(run, tab, tmp_path):
    """Marimo shows the gallery, and its filters work."""
    cells = [f"import lightmeter as lm\nlm.Explorer({str(run.folder)!r})"]
    with notebook_hosts.marimo(notebook_hosts.write_marimo_notebook(tmp_path / "gallery.py", cells)) as url:
        tab.goto(url)
        filter_by_tag(tab)
