"""Answers as data: Arrow schemas, flattening, Parquet parts, DuckDB queries."""
