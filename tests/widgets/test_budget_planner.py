"""The budget planner as a notebook widget; `tests/ui` tests what it does."""

from __future__ import annotations

from lightmeter.ui.planner_facts import PlannerState


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
