"""Rows of a flattener as Arrow tables, in the types of their schemas."""

from __future__ import annotations

import pyarrow as pa

from lightmeter.facts.flatten import Flattener
from lightmeter.tables.fact_arrays import fact_table
from lightmeter.tables.schema import schema

__all__ = ["fact_tables"]


def fact_tables(flattener: Flattener) -> dict[str, pa.Table]:
    """The rows that the flattener holds, by table."""
    return {table: fact_table(rows).cast(schema(table)) for table, rows in flattener.take().items()}
