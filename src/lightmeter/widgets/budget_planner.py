"""`BudgetPlanner`: a notebook widget that plans, prices, runs and stops a run."""

from __future__ import annotations

from lightmeter.ui.planner.planner import PlannerView
from lightmeter.widgets.view_widget import ViewWidget


class BudgetPlanner(PlannerView, ViewWidget, module="planner"):
    """Widget that shows the price of a run, runs it after confirmation, and shows the progress.

    Show it in a cell and use its buttons, or call `plan()` and `run()`. Both methods return immediately and work in the
    background. A click on **Plan** makes a plan, then shows a button that starts the run. The button names the maximum
    number of credits that the run will spend.
    """
