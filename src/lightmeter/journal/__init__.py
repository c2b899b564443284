"""The run's memory: one SQLite file that survives kill -9."""
