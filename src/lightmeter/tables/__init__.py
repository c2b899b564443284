"""Facts as data: Arrow schemas, Parquet parts, DuckDB queries.

`queries` is imported by itself, where it is used: it brings DuckDB.
"""

from lightmeter.tables.dataset import Dataset
from lightmeter.tables.schema import SCHEMA_VERSION, TABLES, schema

__all__ = ["SCHEMA_VERSION", "TABLES", "Dataset", "schema"]
