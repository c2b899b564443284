"""The rows of a run's manifest as an Arrow table, to select them in the tables of the run's folder.

The tables also hold rows of earlier manifests of the folder, and the journal alone knows which rows those are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa

_CHUNK_ROWS: Final = 65_536

_TYPES: Final[dict[str, pa.DataType]] = {"place": pa.int64(), "item_id": pa.string(), "stratum": pa.int32()}


def population_table(rows: Iterable[tuple[str, str | None]], codes: Mapping[str | None, int]) -> pa.Table:
    """Return `rows` as an Arrow table with the columns `place` (position in `rows`, from 0), `item_id` and `stratum`.

    Args:
        rows: Pairs (item_id, value that defines the row's stratum).
        codes: Value → number in the column `stratum`.
    """
    return pa.Table.from_batches(_batches(enumerate(rows), codes), pa.schema(_TYPES))


def _batches(
    places: Iterator[tuple[int, tuple[str, str | None]]], codes: Mapping[str | None, int]
) -> Iterator[pa.RecordBatch]:
    while chunk := list(islice(places, _CHUNK_ROWS)):
        columns: dict[str, list[Any]] = {
            "place": [place for place, _ in chunk],
            "item_id": [item_id for _, (item_id, _) in chunk],
            "stratum": [codes[value] for _, (_, value) in chunk],
        }
        yield pa.record_batch(columns, schema=pa.schema(_TYPES))
