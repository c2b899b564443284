"""The planner, a page that prices a run for the options in a form, starts it, and shows its progress."""
