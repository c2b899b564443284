"""Answers as data: Arrow schemas, flattening, Parquet parts, DuckDB queries.

`queries` is imported by itself, where it is used: it brings DuckDB.
"""

from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.schema import SCHEMA_VERSION, TABLES, schema

__all__ = ["SCHEMA_VERSION", "TABLES", "AnswerContext", "Dataset", "Flattener", "ItemRef", "schema"]
