"""Distributes work that costs no credits over ranges of rows (shards), by Dask or Ray.

Paid requests are planned and sent by one process alone.
"""
