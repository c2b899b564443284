"""Distributes unpaid work on ranges of rows (shards) by Dask or Ray; only one process plans and sends paid requests."""
