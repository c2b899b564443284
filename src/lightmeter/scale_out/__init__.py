"""Distributes free work on ranges of rows (shards) by Dask or Ray; one process alone plans and sends paid requests."""
