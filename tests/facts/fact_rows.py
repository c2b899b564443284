"""Rows of a flattener as Arrow tables, in the types of their schemas."""

from __future__ import annotations

import pyarrow as pa

from lightmeter.facts.flatten import Flattener
from lightmeter.tables import fact_arrays
from lightmeter.tables.schema import schema

__all__ = ["fact_tables"]


def fact_tables(flattener: Flattener) -> dict[str, pa.Table]:
    """The rows that the flattener holds, by table."""
    return {table: rows.cast(schema(table)) for table, rows in fact_arrays.fact_tables(flattener.take()).items()}
