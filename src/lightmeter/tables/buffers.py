"""Rows of one table on their way to Arrow columns: entries of usual answers, and rows that came as values.

Both keep the order of the answers: each span of rows (one picture's facts) has its place, whichever way it went.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lightmeter.tables.arrays import array_of, wrapped
from lightmeter.tables.bulk import Rows, rows_at_once
from lightmeter.tables.colornames import CSS_NAME, css_names
from lightmeter.tables.columns import COLUMNS
from lightmeter.tables.extract import Asked, extract
from lightmeter.tables.shapes import entries as entries_of
from lightmeter.tables.shapes import loads

__all__ = ["Buffer", "Key", "KeyArrays"]


class Key(NamedTuple):
    """The values of the key columns over a span of rows, and what its descriptions were asked for in."""

    item_id: str | None
    url: str | None
    frame: int | None
    run_id: str | None
    asked: Asked


class KeyArrays:
    """The values of many keys, column by column; a column is made when it is first asked for."""

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys
        self._arrays: dict[str, Any] = {}

    def column(self, name: str, arrow_type: Any, places: Any) -> Any:
        """The values of the keys at `places`, texts as a dictionary: most stand in many rows."""
        if name not in self._arrays:
            values = [getattr(key.asked if name in _ASKED else key, name) for key in self._keys]
            self._arrays[name] = array_of(values, arrow_type)
        known = self._arrays[name]
        if pa.types.is_string(arrow_type):
            return pa.DictionaryArray.from_arrays(places, known)
        return known.take(places) if known.null_count < len(known) else pa.nulls(len(places), arrow_type)

    def asked(self, place: int) -> Asked:
        """What the descriptions under a key were asked for in."""
        return self._keys[place].asked


class Buffer:
    """Rows of one table.

    Args:
        table: Its name.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        own = [column for column in COLUMNS[table] if column.name not in _TOLD_ELSEWHERE.get(table, ())]
        self._types = {column.name: column.type for column in own}
        self._clear()

    def _clear(self) -> None:
        self._keys: list[int] = []  # of each span: its key's place among all keys
        self._features: list[Any] = []  # of usual answers, as `usual.py` has them; each is a span
        self._column_spans: list[int] = []  # the other spans
        self._column_counts: list[int] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in self._types}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add_feature(self, key: int, value: Any) -> None:
        """A feature of a usual answer; its entries become columns later, with others."""
        self._features.append(value)
        self._keys.append(key)

    def add_columns(self, key: int, columns: Mapping[str, list[Any]], count: int) -> None:
        """Rows as values, column by column."""
        span = len(self._keys)
        self._keys.append(key)
        self._extend(span, columns, count)

    def _extend(self, span: int, columns: Mapping[str, list[Any]], count: int) -> None:
        self._column_spans.append(span)
        self._column_counts.append(count)
        for name, into in self._columns.items():
            into.extend(columns[name])

    def split(self) -> Buffer:
        """All that is here, in a buffer of its own; this one is empty afterwards."""
        taken = copy(self)
        self._clear()
        return taken

    def table_of(self, keys: KeyArrays, schema: pa.Schema) -> pa.Table:
        """Everything as a table of the schema, but for texts of keys, which are dictionaries; call it once."""
        columns, spans = self._read(keys)
        if self.table == "colors":
            columns[CSS_NAME] = css_names(columns["red"], columns["green"], columns["blue"])
        places = wrapped(np.array(self._keys, np.int32)[spans])
        for field in schema:
            if field.name not in columns:
                columns[field.name] = keys.column(field.name, field.type, places)
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema.names)

    def _read(self, keys: KeyArrays) -> tuple[dict[str, Any], Any]:
        """The own columns of all rows, and the span of each row, in the order of the spans."""
        spans = np.delete(np.arange(len(self._keys)), self._column_spans)
        read = list(self._read_features(spans, self._features, keys)) if self._features else []
        told = [(rows.columns, np.repeat(of, rows.counts)) for of, rows in read]
        if len(told) == 1 and not self._column_counts:
            return told[0]
        own = {name: array_of(self._columns[name], of) for name, of in self._types.items()}
        told.append((own, np.repeat(np.array(self._column_spans, np.int64), self._column_counts)))
        arrays = {name: pa.concat_arrays([columns[name] for columns, _ in told]) for name in self._types}
        rows_of = np.concatenate([of for _, of in told])
        order = np.argsort(rows_of, kind="stable")  # what went the long way was set aside
        places = wrapped(order)
        return {name: array.take(places) for name, array in arrays.items()}, rows_of[order]

    def _read_features(self, spans: Any, features: list[Any], keys: KeyArrays) -> Iterator[tuple[Any, Rows]]:
        """The rows of usual features, with their spans; what is unusual is found by halves, and goes the long way."""
        rows = rows_at_once(self.table, features)
        if rows is not None:
            yield spans, rows
        elif len(features) == 1:
            span = int(spans[0])
            told = entries_of(self.table, [loads(bytes(piece)) for piece in features[0]])
            self._extend(span, extract(self.table, told, keys.asked(self._keys[span])), len(told.fields))
        else:
            half = len(features) // 2
            yield from self._read_features(spans[:half], features[:half], keys)
            yield from self._read_features(spans[half:], features[half:], keys)


_ASKED: Final = frozenset({"role", "language"})
_TOLD_ELSEWHERE: Final = {"colors": (CSS_NAME,), "descriptions": tuple(_ASKED)}
"""Columns that entries do not say: they come of other columns, or of the request."""
