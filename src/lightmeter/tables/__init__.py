"""The output tables: Arrow schemas, Parquet files, DuckDB queries, and copies in object stores.

A *part* is one Parquet file of a table. This module does not import `query`, because that would load DuckDB.
"""

from lightmeter.tables.arrow.schema import SCHEMA_VERSION, TABLES, schema
from lightmeter.tables.dataset import Dataset

__all__ = ["SCHEMA_VERSION", "TABLES", "Dataset", "schema"]
