"""The planner: form, prices of other options, spending, and the progress of a run."""
