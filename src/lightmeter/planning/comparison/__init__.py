"""Comparison of two plans, cost by a column of the manifest, and limits on a price above which a command fails."""
