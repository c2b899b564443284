"""Notebook widgets: `BudgetPlanner` plans and runs, `Explorer` shows a run as a gallery.

With `Review`, a person keeps or rejects images and videos by their NSFW ratings.
"""
