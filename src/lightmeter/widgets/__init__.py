"""Notebook widgets: `BudgetPlanner` prices and starts a run, `Explorer` shows the images and videos of a run.

With `Review`, a person keeps or rejects images and videos by their NSFW ratings.
"""
