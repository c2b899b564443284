"""Work on shards of rows, distributed by Dask or Ray. Only free work: plans, budgets and requests stay in one."""
