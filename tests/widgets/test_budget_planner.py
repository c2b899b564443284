"""The budget planner as a notebook widget; `tests/ui` tests what it does."""

from __future__ import annotations

import lightmeter as lm
from lightmeter.ui.planner.planner_facts import PlannerState


def test_the_planner_is_a_widget(planner):
    """The planner is one widget of its own module; a viewer without widgets shows one line of text about it."""
    data, _ = planner._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].startswith("BudgetPlanner(out=")
    assert "export default { render }" in planner._esm
    assert ".lm-planner" in planner._css


def test_the_planner_runs_in_python(planner, run):
    """The methods of the widget plan and run, and the widget's state shows the outcome."""
    assert planner.planned.counts["pending"] == 3
    assert run.summary().counts["ok"] == 3
    assert planner.outcome["message"] == "Done: 3 ok, 1 skipped, 1 duplicate."
    assert planner.state is PlannerState.IDLE


def test_the_page_chooses_the_subshell(tmp_path):
    """What the widget writes to the page does not tie the page's next message to a shell that executes a cell."""
    planner = lm.BudgetPlanner(["https://example.org/a.jpg"], out=tmp_path / "out")
    planner.comm._reply_subshell_id = None  # as ipykernel sets it whenever the kernel writes to the page
    planner.set_form(budget=3)
    assert not hasattr(planner.comm, "_reply_subshell_id")
