"""The live page, which shows the progress and credits of a run while it goes on, as read from the run's journal."""
