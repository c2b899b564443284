"""SQL queries over the tables of a run, answered by DuckDB."""
