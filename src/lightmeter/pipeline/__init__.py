"""The story, without Prefect, widgets or terminals: plan, run, export."""
