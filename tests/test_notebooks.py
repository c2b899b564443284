"""Notebooks run without errors, leave usable widgets behind, and are stored without outputs.

The first runs once in `make test`; all run, also twice in one kernel, in the sweeps.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.sweeps import sweep

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MACHINE = re.compile(r"(?<![\w.])/(home|root|tmp|usr|var|work|Users)/|127\.0\.0\.1|localhost|[A-Z]:\\\\")
STORIES = (
    "01-quickstart",
    "02-tables",
    "03-plan-a-budget",
    "04-moderate",
    "05-explore-and-label",
    "06-your-own-back-end",
    "07-schedule-it",
)
SLOW = "slow"
"""Tag of cells that take more than 20 seconds, because they start a server of Prefect."""

Execute = Callable[..., "Executed"]


@pytest.fixture(scope="module")
def nbformat() -> Any:
    """The module nbformat, imported here because it takes seconds in each process that collects these tests."""
    return importlib.import_module("nbformat")


class Executed:
    """A notebook whose cells were executed in one kernel, and a folder with its files.

    Attributes:
        first: The outputs of the first pass, without those of other cells than code.
        second: The outputs of the second pass, or None if there was one pass only.
        state: The value of the expression that was evaluated at the end.
        out: The folder with the runs.
    """

    def __init__(self, cells: list[Any], passes: int, out: Path) -> None:
        *cells, last = [cell for cell in cells if cell.cell_type == "code"]
        end = len(cells) // passes
        self.first = [output for cell in cells[:end] for output in cell.outputs]
        self.second = [output for cell in cells[end:] for output in cell.outputs] if passes > 1 else None
        self.state = json.loads(last.outputs[-1].text)
        self.out = out

    def texts(self) -> str:
        """Everything that the notebook has shown as text in the first pass."""
        return "\n".join(output.get("text", "") or output.data.get("text/plain", "") for output in self.first)

    def count(self, kind: str) -> int:
        """Return how many outputs of a MIME type the first pass has shown; a second one must show as many."""
        first, second = (
            None if outputs is None else sum(kind in output.get("data", {}) for output in outputs)
            for outputs in (self.first, self.second)
        )
        assert second in {first, None}
        return first

    def widgets(self) -> list[str]:
        """Return the class names of the widgets that the first pass has shown."""
        view = "application/vnd.jupyter.widget-view+json"
        views = [output.data for output in self.first if view in output.get("data", {})]
        return [data["text/plain"].split("(")[0] for data in views]


@pytest.fixture(params=[pytest.param(1, id="once"), sweep(2, name="twice")])
def passes(request) -> int:
    """How often the cells of a notebook are executed in one kernel."""
    return request.param


@pytest.fixture
def execute(tmp_path, monkeypatch, cache, passes, nbformat) -> Execute:
    """A function that executes a notebook in a project of its own, and then evaluates an expression in it."""
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    (tmp_path / "notebooks").mkdir()
    for name in ("data", "flows"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    shutil.copy(ROOT / "prefect.yaml", tmp_path)

    def run(number: int, expression: str, *, with_slow_cells: bool = False) -> Executed:
        notebook = nbformat.read(NOTEBOOKS[number - 1], as_version=4)
        once = [cell for cell in notebook.cells if with_slow_cells or SLOW not in cell.metadata.get("tags", ())]
        again = [
            nbformat.NotebookNode({**cell, "id": f"again-{cell.id}", "outputs": []}) for cell in once if passes > 1
        ]
        last = nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({expression}))")
        notebook.cells = [*once, *again, last]
        resources = {"metadata": {"path": tmp_path / "notebooks"}}
        client = importlib.import_module("nbclient").NotebookClient
        client(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
        assert list((tmp_path / "notebooks").iterdir()) == []
        return Executed(notebook.cells, passes, tmp_path / "out" / "notebooks" / f"{number:02}")

    return run


def name(path: Path) -> str:
    return path.name


def test_there_is_a_notebook_for_each_story():
    """Seven notebooks are delivered, and the README lists each of them."""
    assert tuple(path.stem for path in NOTEBOOKS) == STORIES
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"notebooks/{path.name}" not in readme] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_stored_clean(nbformat, path):
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
def test_notebook_sections_are_numbered(nbformat, path):
    """Title and sections are numbered like the file, and the notebook begins with text."""
    notebook = nbformat.read(path, as_version=4)
    number = str(int(path.name[:2]))
    headings = [
        line.lstrip("#").strip()
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for line in re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL).splitlines()
        if line.startswith("#")
    ]
    assert headings[0].startswith(f"{number} ")
    sections = [heading.split()[0] for heading in headings[1:]]
    assert sections == [f"{number}.{at}" for at in range(1, len(sections) + 1)]
    assert notebook.cells[0].cell_type == "markdown"


GALLERY = "(explorer.wait(), explorer.problem, explorer.error, explorer.result['items'], explorer.result['total'])[1:]"
"""What an explorer shows: its errors, and its numbers of items."""


@pytest.mark.slow
def test_quickstart(execute):
    """The plan, the run, the statement, a plot and a usable explorer are shown; the second pass pays nothing."""
    ran = execute(1, f"[{GALLERY}, run.summary().to_dict()]")
    gallery, summary = ran.state
    assert gallery == ["", "", 20, 20]
    assert (summary["ok"], summary["rows"], summary["requests"]) == (20, 20, 20)
    assert 12 <= summary["credits"]["paid"] <= 25
    assert ran.widgets() == ["Explorer"]
    assert ran.count("image/png") == 1
    assert "20 of 20" in ran.texts() or "20/20 rows" in ran.texts(), "the progress of the run"
    assert (ran.out / "tables" / "assets").is_dir()


@pytest.mark.sweep
@pytest.mark.slow
def test_tables(execute):
    """Every query has a result, both plots and the report are shown, and both duplicates are found."""
    ran = execute(2, "run.sql('SELECT item_id, kind FROM duplicates ORDER BY item_id').values.tolist()")
    kinds = [["castle", "paid"], ["castle_small", "near"], ["chelsea", "paid"], ["chelsea_again", "exact"]]
    assert ran.state == kinds
    assert ran.count("image/png") == 2
    html_outputs = [output.data["text/html"] for output in ran.first if "text/html" in output.get("data", {})]
    tables = [html for html in html_outputs if "dataframe" in html and "srcdoc" not in html]
    assert len(tables) == 10
    assert all("<td>" in table for table in tables)
    assert "22 rows" in ran.texts()
    assert "srcdoc" in html_outputs[-1]


@pytest.mark.sweep
@pytest.mark.slow
def test_plan_a_budget(execute):
    """The planner offers its price at the end, the sample stays below its budget, and the whole run follows."""
    expressions = "planner.error, planner.state, planner.price, planner.offer"
    ran = execute(3, f"[{expressions}, whole.summary().to_dict(), statement.paid]")
    error, state, price, offer, summary, paid = ran.state
    assert (error, state) == ("", "idle")
    assert "error" not in price
    assert offer["credits"] == offer["price"]["high"] == 25
    assert (summary["ok"], summary["requests"], summary["credits"]["paid"], paid) == (20, 20, 20, 20)
    assert ran.widgets() == ["BudgetPlanner"]
    assert ran.count("image/png") == 4
    assert "12 ok, 8 over_budget, 12 credits paid" in ran.texts()
    assert not (ran.out / "planner" / "journal.sqlite").exists(), "a plan spends nothing"


@pytest.mark.sweep
@pytest.mark.slow
def test_moderate(execute):
    """Both back ends rate all images, decisions become a table, and both widgets are usable."""
    decisions = "run.reviews.set_index('item_id')['decision'].to_dict()"
    review = "[review.error, review.may_write, [source['name'] for source in review.sources]]"
    ran = execute(
        4, f"[{GALLERY}, {review}, {decisions}, severity.notna().sum().to_dict(), len(queue), len(agreement.losses)]"
    )
    gallery, (error, may_write, sources), decisions, rated, queue, losses = ran.state
    assert (error, may_write, sorted(sources)) == ("", True, ["nsfwjs", "opennsfw"])
    assert decisions == {"macaw": "keep", "spaniels": "unsure"}
    assert losses == 2
    assert gallery == ["", "", 17, 17]
    assert rated == {"nsfwjs": 17, "opennsfw": 17}
    assert queue > 0
    assert ran.count("image/png") == 3
    review, explorer = ran.widgets()
    assert "Review" in review
    assert "Explorer" in explorer


@pytest.mark.sweep
@pytest.mark.slow
def test_explore_and_label(execute):
    """Filters and selection come back to Python, labels are written, and boxes are shares of the picture."""
    ran = execute(5, f"[{GALLERY}, explorer.selection, samples, relative_box(-10, 20, 60, 40, 100, 50)]")
    gallery, selection, samples, box = ran.state
    assert gallery[:2] == ["", ""]
    assert 0 < gallery[2] < gallery[3] == 17
    assert {"chelsea", "spaniels"} < set(selection)
    assert "rocket" not in selection
    for labels in (pd.read_csv(ran.out / "labels.csv"), pd.read_parquet(ran.out / "labels.parquet")):
        assert sorted(labels[labels["label"] == "animal"]["item_id"]) == sorted(selection)
    assert box == [0.0, 0.4, 0.5, 0.6], "cut off at the left and the lower edge"
    assert len(samples) == 17
    faces = {sample["item_id"]: sample["faces"] for sample in samples if sample["faces"]}
    assert {"astronaut", "camera"} <= set(faces)
    for sample in samples:
        assert Path(sample["filepath"]).is_file()
        assert all(0 <= score <= 1 for score in sample["tags"].values())
    for left, top, width, height in (face["bounding_box"] for found in faces.values() for face in found):
        assert 0 <= left < left + width <= 1
        assert 0 <= top < top + height <= 1
    assert ran.count("image/png") == 2
    assert ran.widgets() == ["Explorer"]


def test_boxes_of_samples_are_shares_of_the_picture():
    """The recipe's boxes, of shares or of pixels, are shares of the picture, cut off at its edges."""
    cells = json.loads(NOTEBOOKS[4].read_text(encoding="utf-8"))["cells"]
    sources = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    recipe = next(source for source in sources if source.startswith("def relative_box"))
    names: dict[str, Callable[..., list[float]]] = {}
    exec(recipe.partition("\n\n\ndef to_samples")[0], names)  # noqa: S102 (our own notebook)
    assert names["relative_box"](-10, 20, 60, 40, 100, 50) == [0.0, 0.4, 0.5, 0.6], "cut off at the left and below"
    assert names["relative_box"](0.1, 0.2, 0.3, 0.9, 100, 50) == [0.1, 0.2, 0.3, 0.8]


def test_fiftyone_recipe_makes_samples(nbformat):
    """The recipe makes samples with tags and boxes of the real FiftyOne, where that is installed; no database runs."""
    pytest.importorskip("fiftyone")
    notebook = nbformat.read(NOTEBOOKS[4], as_version=4)
    recipe = next(cell.source for cell in notebook.cells if cell.source.startswith("def fiftyone_samples"))
    names: dict[str, Callable[..., list[Any]]] = {}
    exec(recipe, names)  # noqa: S102 (our own notebook)
    columns = {"item_id": "a", "subject": "cat", "licence": "CC0", "size": [100, 50]}
    face = {"label": "face", "bounding_box": [0.1, 0.2, 0.3, 0.4]}
    found = {"filepath": "/a.jpg", **columns, "tags": {"cat": 0.9}, "faces": [face]}
    (sample,) = names["fiftyone_samples"]([found])
    assert sample.faces.detections[0].bounding_box == face["bounding_box"]
    assert [(one.label, one.confidence) for one in sample.machine_tags.classifications] == [("cat", 0.9)]


@pytest.mark.sweep
@pytest.mark.slow
def test_your_own_back_end(execute):
    """The model in an ONNX file and the class answer all images, at their own prices."""
    scores = "scores.loc[['coffee', 'rocket']].round(3).to_dict('index')"
    shares = (
        "[[share.backend, share.pictures, float(share.credits)] for share in run.statement().cost_breakdown.shares]"
    )
    ran = execute(6, f"[{GALLERY}, {scores}, {shares}]")
    gallery, scores, shares = ran.state
    assert gallery == ["", "", 17, 17]
    assert scores["coffee"]["warm"] > 0.5 > scores["rocket"]["warm"]
    assert all(row["detailed"] + row["smooth"] == pytest.approx(1, abs=0.002) for row in scores.values())
    assert sorted(shares) == [["sharpness", 17, pytest.approx(3.4)], ["warmth", 17, pytest.approx(1.7)]]
    assert ran.count("image/png") == 1
    assert ran.widgets() == ["Explorer"]


@pytest.mark.sweep
@pytest.mark.slow
def test_schedule_it(execute, passes):
    """Each night pays for its new rows only, and a second pass pays for none."""
    ran = execute(7, "[nights.values.tolist(), (out / 'tonight.json').is_file()]")
    assert "night 1     6         6" in ran.texts()
    nights, has_plan = ran.state
    assert has_plan
    assert [night[0] for night in nights] == [night[3] for night in nights] == [6, 10, 17]
    assert sum(night[2] for night in nights) == (17 if passes == 1 else 0)
    assert ran.count("image/png") == 1


@pytest.mark.sweep
def test_schedule_it_with_prefect(execute):
    """The flow follows the plan file on three rows, without a server that was started by hand."""
    ran = execute(7, "lm.open(out / 'flow').summary().to_dict()", with_slow_cells=True)
    assert (ran.state["ok"], ran.state["rows"], ran.state["requests"]) == (3, 3, 3)
