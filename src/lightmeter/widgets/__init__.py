"""Notebook widgets: `BudgetPlanner` plans and runs, `Explorer` shows a run as a gallery, `Review` is for decisions."""
