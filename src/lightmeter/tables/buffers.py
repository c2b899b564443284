"""Rows of one table on their way to Arrow columns: entries of usual answers, and rows that came as values.

Both keep the order of the answers: each span of rows (one picture's facts) has its place, whichever way it went.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lightmeter.tables.arrays import array_of
from lightmeter.tables.bulk import columns_at_once
from lightmeter.tables.colornames import CSS_NAME, css_names
from lightmeter.tables.columns import COLUMNS
from lightmeter.tables.extract import Asked, extract
from lightmeter.tables.shapes import entries as entries_of
from lightmeter.tables.shapes import loads
from lightmeter.tables.usual import KEYED, decode_entries

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
        self._keyed = table in KEYED
        self._clear()

    def _clear(self) -> None:
        self._keys: list[int] = []  # of each span: its key's place among all keys
        self._entries: list[Any] = []  # of usual answers
        self._ends: list[int] = []  # where they end of each span that is not among these:
        self._column_spans: list[int] = []
        self._column_counts: list[int] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in self._types}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add_feature(self, key: int, value: Any) -> None:
        """A feature of a usual answer; its entries become columns later, with others."""
        self._entries.extend(chain.from_iterable(value.values()) if self._keyed else value)
        self._ends.append(len(self._entries))
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
        places = pa.array(np.array(self._keys, np.int32)[spans])
        for field in schema:
            if field.name not in columns and field.name != CSS_NAME:
                columns[field.name] = keys.column(field.name, field.type, places)
        if self.table == "colors":
            columns[CSS_NAME] = css_names(columns["red"], columns["green"], columns["blue"])
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema.names)

    def _read(self, keys: KeyArrays) -> tuple[dict[str, Any], Any]:
        """The own columns of all rows, and the span of each row, in the order of the spans."""
        entries = self._at_once(keys)
        if entries is not None and not self._column_counts:
            return entries
        columns: dict[str, Any] = {name: array_of(self._columns[name], of) for name, of in self._types.items()}
        spans = np.repeat(np.array(self._column_spans, np.int64), self._column_counts)
        if entries is not None:
            columns = {name: pa.concat_arrays([array, entries[0][name]]) for name, array in columns.items()}
            spans = np.concatenate([spans, entries[1]])
        order = np.argsort(spans, kind="stable")
        return {name: array.take(pa.array(order)) for name, array in columns.items()}, spans[order]

    def _at_once(self, keys: KeyArrays) -> tuple[dict[str, Any], Any] | None:
        """The columns of the entries and the span of each; None where there are none."""
        columns = columns_at_once(self.table, self._entries, self._ends) if self._entries else None
        if self._entries and columns is None:
            self._set_aside(keys)
            columns = columns_at_once(self.table, self._entries, self._ends) if self._entries else None
        if columns is None:
            return None
        return columns, np.repeat(self._entry_spans(), np.diff(self._ends, prepend=0))

    def _entry_spans(self) -> Any:
        return np.delete(np.arange(len(self._keys)), self._column_spans)

    def _set_aside(self, keys: KeyArrays) -> None:
        """Entries that are unusual where only their own reader looks go the long way, each with its picture's."""
        spans, bounds, entries = self._entry_spans().tolist(), pairwise([0, *self._ends]), self._entries
        self._ends, self._entries = [], []
        for span, (first, end) in zip(spans, bounds, strict=True):
            pieces = entries[first:end]
            if decode_entries(self.table, pieces) is not None:
                self._entries.extend(pieces)
                self._ends.append(len(self._entries))
            else:
                told = entries_of(self.table, [loads(bytes(piece)) for piece in pieces])
                self._extend(span, extract(self.table, told, keys.asked(self._keys[span])), len(told.fields))


_ASKED: Final = frozenset({"role", "language"})
_TOLD_ELSEWHERE: Final = {"colors": (CSS_NAME,), "descriptions": tuple(_ASKED)}
"""Columns that entries do not say: they come of other columns, or of the request."""
