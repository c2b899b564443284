"""Writes the table `items`, which sums up the other tables, in one file."""

from __future__ import annotations

from itertools import chain
from typing import Final

import pyarrow as pa

from lightmeter.facts.columns import ITEMS
from lightmeter.tables.dataset import Dataset, open_parts
from lightmeter.tables.parts import read_schema
from lightmeter.tables.query.duckdb_query import QuerySession
from lightmeter.tables.query.items_sql import MIN_SCORE, items_schema, items_sql

_LEAST_MEMORY_MIB: Final = 512
_ROWS_PER_MIB: Final = 2000
"""Rows of `items` for each MiB of DuckDB's memory limit, above the least limit.

More goes to temporary files, except lists, which DuckDB keeps in memory until they are complete.
"""


def write_items(dataset: Dataset, min_score: float = MIN_SCORE) -> int:
    """Write the table `items` from the files of the other tables, and return its number of rows.

    Call it only inside a block of `Dataset.locked`, after the other tables are written.

    Args:
        dataset: The tables.
        min_score: Lowest score of the tags, 0 to 1.

    Raises:
        TablesError: A file cannot be read.
        OSError: The table cannot be written.
    """
    parts = dataset.describe("assets")
    assets = pa.unify_schemas([read_schema(part.path) for part in parts], promote_options="permissive")
    runs = dict(chain.from_iterable(part.runs.items() for part in parts))
    lineage = {**parts[-1].lineage, "runs": runs, "min_score": min_score}
    memory_mib = max(_LEAST_MEMORY_MIB, sum(part.rows for part in parts) // _ROWS_PER_MIB)
    with (
        dataset.staging() as staging,
        open_parts(staging, 0, {ITEMS: items_schema(assets)}, lineage) as writers,
        QuerySession(dataset.out, memory_mib=memory_mib) as session,
    ):
        for batch in session.batches(items_sql(assets, min_score)):
            writers[ITEMS].write(pa.Table.from_batches([batch]))
        writers[ITEMS].close()
        dataset.publish(staging)
    return writers[ITEMS].rows
