"""Computes statistics from the tables of a run: agreement between back ends, and shares in the whole manifest."""
