"""The notebooks run without errors and are stored without outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
QUICKSTART, TABLES = NOTEBOOKS
MACHINE = re.compile(r"(?<![\w.])/(home|root|tmp|usr|var|work|Users)/|127\.0\.0\.1|localhost|[A-Z]:\\\\")


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_stored_clean(path):
    """A notebook is stored without outputs, execution counts and paths of the author's machine."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert MACHINE.search(cell.source) is None
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_sections_are_numbered(path):
    """Title and sections are numbered like the file, and the notebook begins with text."""
    notebook = nbformat.read(path, as_version=4)
    number = str(int(path.name[:2]))
    headings = [
        line.lstrip("#").strip()
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("#")
    ]
    assert headings[0].startswith(f"{number} ")
    sections = [heading.split()[0] for heading in headings[1:]]
    assert sections == [f"{number}.{at}" for at in range(1, len(sections) + 1)]
    assert notebook.cells[0].cell_type == "markdown"


@pytest.mark.slow
def test_quickstart_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Every cell runs without an error, both widgets are shown and usable at the end, and every row is counted."""
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
    notebook = nbformat.read(QUICKSTART, as_version=4)
    summaries = "import json\nprint(json.dumps([ended.summary().to_dict() for ended in (run, resumed)]))"
    notebook.cells.append(nbformat.v4.new_code_cell(summaries))
    state = "[explorer.problem, explorer.result['items'], planner.out.is_dir()]"
    notebook.cells.append(nbformat.v4.new_code_cell(f"explorer.wait()\nprint(json.dumps({state}))"))
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    whole, resumed = json.loads(notebook.cells[-2].outputs[0].text)
    problem, cards, is_there = json.loads(notebook.cells[-1].outputs[0].text)
    assert (problem, is_there) == ("", True), "the last cell leaves the widgets what they need"
    assert cards > 0
    assert (whole["rows"], whole["ok"], whole["failed"]) == (20, 20, 0)
    assert 12 <= whole["credits"]["paid"] <= 25
    assert (resumed["ok"], resumed["over_budget"]) == (20, 0)
    assert resumed["credits"]["paid"] <= 25
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.data["text/plain"] for output in shown if "text/plain" in output.get("data", {})]
    assert sum("5 ok, 15 over_budget, 5 credits paid" in text for text in texts) == 1
    views = [output.data for output in shown if "application/vnd.jupyter.widget-view+json" in output.get("data", {})]
    assert [view["text/plain"].split("(")[0] for view in views] == ["BudgetPlanner", "Explorer"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_tables_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Every query has a result, the plot and the report are shown, and no file is left behind."""
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
    notebook = nbformat.read(TABLES, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and "run" in cell.source]
    shown = [output.data for cell in cells for output in cell.outputs if "data" in output]
    assert "20 ok" in shown[0]["text/plain"]
    tables = [
        data["text/html"] for data in shown if "<table" in data.get("text/html", "") and "srcdoc" not in str(data)
    ]
    assert len(tables) == 7
    assert all("<td>" in table for table in tables)
    assert sum("image/png" in data for data in shown) == 1
    assert "All 20 rows are answered." in shown[-1]["text/html"]
    assert list(tmp_path.iterdir()) == []
