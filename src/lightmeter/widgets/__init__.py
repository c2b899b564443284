"""Notebook widgets: `BudgetPlanner` plans and runs, `Explorer` shows the items of a run as a gallery."""
