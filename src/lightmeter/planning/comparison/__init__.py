"""Comparison of two plans, cost by a column of the manifest, and price limits above which a command fails."""
