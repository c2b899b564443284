"""The engine: sends the pending rows of a run within its budget, polls for answers and accounts for every credit."""
