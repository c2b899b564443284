"""Reads DataFrames that Arrow cannot pass on, because a column has Python values of mixed types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from lightmeter.errors import ManifestError
from lightmeter.manifest.arrow_reader import batch_rows, duplicate_columns, open_stream
from lightmeter.manifest.row_parser import RawRow, ReadOptions, named_columns, observe_types, plain_row


def mixed_frame_rows(frame: Any, name: str, types: dict[str, str], options: ReadOptions) -> Iterator[RawRow]:
    """Yield the rows of a DataFrame: columns that Arrow passes on as `batch_rows` does, others as from a list of dicts.

    Args:
        frame: The DataFrame, of pandas or Polars. Levels of the index that have a name are columns too, as in Arrow.
        name: Name of the manifest for messages.
        types: Column → type, such as `int64`, for all columns but those of URLs, paths, ids and kinds. It is adapted to
            each row before the row is yielded.
        options: Names of the columns of URLs, ids and kinds (image or video).

    Raises:
        ManifestError: as `batch_rows` does.
    """
    whole: Any = _with_index_columns(frame) if hasattr(frame, "reset_index") else frame
    columns = list(whole.columns)
    if len(set(columns)) < len(columns):
        raise duplicate_columns(name)
    labels = dict(zip(columns, named_columns(columns), strict=True))
    mixed = {column: labels[column] for column in columns if open_stream(whole[[column]]) is None}
    values = zip(*(whole[column] for column in mixed), strict=True)
    nulls = dict.fromkeys(mixed)
    stream = open_stream(whole.assign(**nulls) if hasattr(whole, "assign") else whole.with_columns(**nulls))
    if stream is None:
        raise ManifestError(f"{name}: it cannot be converted to Arrow", hint="Give a list of dicts, one a row.")
    kinds: dict[str, str] = {}
    for row in batch_rows(stream, stream.schema, name, kinds, options):
        other = plain_row(dict(zip(mixed.values(), next(values, ()), strict=True)))
        types.update({column: kind for column, kind in kinds.items() if column not in mixed.values()})
        observe_types(types, [column for column in other.cells if column in kinds], other.cells)
        yield RawRow({**row.cells, **other.cells}, cell_notes={**row.cell_notes, **other.cell_notes})


def _with_index_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of `frame` without an index, whose last columns are the levels that Arrow would pass on."""
    whole = frame.reset_index(drop=True)
    whole.columns = whole.columns.map(str)
    if not isinstance(frame.index, pd.RangeIndex):
        for place, level in enumerate(frame.index.names):
            if level is not None and level not in frame.columns:
                whole[str(level)] = frame.index.get_level_values(place)
    return whole
