"""Writing of a table by tests, without a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartWriter


@contextmanager
def replace_table(
    dataset: Dataset, table: str, schema: pa.Schema, lineage: Mapping[str, Any] | None = None
) -> Iterator[PartWriter]:
    """Yield a writer for a new part, which replaces all parts of the table when the block ends without an error."""
    with dataset.locked(), dataset.replacing({table: schema}, lineage or {}) as writers:
        yield writers[table]
