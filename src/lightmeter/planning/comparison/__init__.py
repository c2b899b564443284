"""Comparison of two plans, cost for each value of a manifest column, and price limits above which a command fails."""
