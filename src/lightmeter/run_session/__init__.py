"""Prepares the folder of a run, starts the next run in it, and opens its resources: journal, service and client."""
