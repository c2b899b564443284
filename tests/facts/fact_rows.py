"""Rows of a flattener as Arrow tables, in the types of their schemas."""

from __future__ import annotations

import pyarrow as pa

from lightmeter.facts.flatten import Flattener
from lightmeter.tables.arrow.fact_tables import fact_tables as to_arrow_tables
from lightmeter.tables.arrow.schema import schema

__all__ = ["fact_tables"]


def fact_tables(flattener: Flattener) -> dict[str, pa.Table]:
    """The rows that the flattener holds, by table."""
    return {table: rows.cast(schema(table)) for table, rows in to_arrow_tables(flattener.take()).items()}
