"""The widgets in the programs that show notebooks: JupyterLab, voila and marimo, each as a real process."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

import lightmeter as lm
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from tests.tables.replace_table import replace_table
from tests.ui import notebook_hosts, widget_use
from tests.ui.slow_service import charged_requests
from tests.ui.test_planner import pictures
from tests.ui.test_review import copy_of

WAIT_MS = 120_000
MEDIA = notebook_hosts.PICTURE.parent

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


HOSTS = ("jupyterlab", "voila", "marimo")


@contextmanager
def serve_notebook(host: str, folder: Path, code: str, show: str, after: str = "") -> Iterator[str]:
    """Serve a notebook whose cells run `code`, show the widget `show`, and show what `after` gives; give its address.

    `after` is for marimo alone, whose cells run anew when the state of a widget that they name has changed.
    """
    if host != "marimo":
        path = notebook_hosts.write_notebook(folder / "page.ipynb", [f"{code}\n{show}"])
        serve = notebook_hosts.voila if host == "voila" else notebook_hosts.jupyterlab
        with serve(path) as url:
            yield url
        return
    cells = ["import marimo as mo", f"{code}\nwidget = mo.ui.anywidget({show})", "widget", after or "None"]
    with notebook_hosts.marimo(notebook_hosts.write_marimo_notebook(folder / "page.py", cells)) as url:
        yield url


@pytest.fixture(scope="session")
def varied(tmp_path_factory) -> Path:
    """The folder of a run with boxes of texts, tags, ratings, colors, embeddings, a video and a manifest's column."""
    manifest = tmp_path_factory.mktemp("manifest") / "varied.jsonl"
    rows = [("cameras.jpg", "camera"), ("chelsea.jpg", "cat"), ("samoyed.mp4", "dog")]
    manifest.write_text(
        "".join(
            json.dumps({"id": name.partition(".")[0], "path": str(MEDIA / name), "subject": subject}) + "\n"
            for name, subject in rows
        )
    )
    plan = lm.plan(manifest, features=["tags", "nsfw", "colors", "texts"], max_frames=2, budget=100)
    run = lm.run(plan, out=tmp_path_factory.mktemp("runs") / "varied")
    vectors = pa.array([[1.0, 0.0], [0.6, 0.8]], pa.list_(pa.float32()))
    with replace_table(Dataset(run.folder), "embeddings", schema("embeddings")) as part:
        part.write(pa.table({"item_id": ["cameras", "chelsea"], "vector": vectors}))
    return run.folder


@pytest.mark.parametrize("host", HOSTS)
def test_every_control_of_the_explorer(host, varied, tab, tmp_path):
    """In each program every control of the gallery works, and the selection arrives in Python."""
    out = shutil.copytree(varied, tmp_path / "out")
    code = f"import lightmeter as lm\nexplorer = lm.Explorer({str(out)!r})"
    show, after = "explorer", "mo.md('selected: ' + ' '.join(widget.value['selection']))"
    if host != "marimo":  # a function of Python follows the selection: no cell runs anew
        code += (
            "\nimport ipywidgets\nlabel = ipywidgets.Label()\n"
            "def follow(change):\n    label.value = 'selected: ' + ' '.join(change['new'])\n"
            "explorer.observe(follow, 'selection')"
        )
        show = "ipywidgets.VBox([explorer, label])"
    with serve_notebook(host, tmp_path, code, show, after) as url:
        tab.goto(url)
        if host == "jupyterlab":
            run_all(tab)
        widget_use.use_explorer(tab)
        expect(tab.get_by_text("selected: chelsea samoyed")).to_be_visible(timeout=WAIT_MS)


@pytest.mark.parametrize("host", HOSTS)
def test_every_control_of_the_planner(host, slow_service, tab, tmp_path):
    """In each program the planner spends on its button alone, stops, goes on, and pays each row once."""
    manifest = pictures(tmp_path, 30)
    options = {"backends": "palette", "features": "colors", "budget": 500, "duplicates": "off"}
    options |= {"max_concurrency": 1, "upload": "always", "base_url": slow_service.base_url}
    code = "import lightmeter as lm"
    show = f"lm.BudgetPlanner({str(manifest)!r}, out={str(tmp_path / 'out')!r}, **{options!r})"
    with serve_notebook(host, tmp_path, code, show) as url:
        tab.goto(url)
        if host == "jupyterlab":
            run_all(tab)
        widget_use.use_planner(tab, 30)
    assert charged_requests(slow_service) == lm.open(tmp_path / "out").summary().paid == 30


@pytest.mark.parametrize("host", HOSTS)
def test_every_control_of_the_review(host, run, tab, tmp_path):
    """In each program every control of the review works, and the decisions are in the table `reviews`."""
    out = copy_of(run, tmp_path / "out")
    with serve_notebook(host, tmp_path, "import lightmeter as lm", f"lm.Review({str(out)!r})") as url:
        tab.goto(url)
        if host == "jupyterlab":
            run_all(tab)
        widget_use.use_review(tab)
        deadline = time.monotonic() + 30
        while len(rows := Dataset(out).read("reviews").to_pylist()) < 3:
            assert time.monotonic() < deadline, rows
            tab.wait_for_timeout(100)
    found = {row["item_id"]: (row["decision"], row["by"], row["note"]) for row in rows}
    assert found == {
        "chelsea": ("reject", "ann", None),
        "coffee": ("unsure", "ann", "kitchen"),
        "samoyed": ("keep", "ann", None),
    }
    assert all(row["at"] is not None for row in rows)
