"""Writing of tables by tests, without a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lightmeter.tables.dataset import Dataset, open_parts
from lightmeter.tables.parts import PartWriter


@contextmanager
def replace_tables(
    dataset: Dataset, schemas: Mapping[str, pa.Schema], lineage: Mapping[str, Any], *, keep_others: bool = False
) -> Iterator[dict[str, PartWriter]]:
    """Yield a writer for one new part of each table. When the block ends without an error, publish the parts."""
    with dataset.locked(), dataset.staging() as staging, open_parts(staging, 0, schemas, lineage) as writers:
        yield writers
        for writer in writers.values():
            writer.close()
        dataset.publish(staging, keep_others=keep_others)


@contextmanager
def replace_table(
    dataset: Dataset, table: str, schema: pa.Schema, lineage: Mapping[str, Any] | None = None
) -> Iterator[PartWriter]:
    """Yield a writer for a new part, which replaces all parts of the table when the block ends without an error."""
    with replace_tables(dataset, {table: schema}, lineage or {}) as writers:
        yield writers[table]
