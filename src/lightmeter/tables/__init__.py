"""The tables: Arrow schemas, Parquet parts, DuckDB queries, remote stores.

Import `queries` where it is used: it loads DuckDB.
"""

from lightmeter.tables.dataset import Dataset
from lightmeter.tables.schema import SCHEMA_VERSION, TABLES, schema

__all__ = ["SCHEMA_VERSION", "TABLES", "Dataset", "schema"]
