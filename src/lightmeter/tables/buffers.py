"""Rows of one table on their way to Arrow columns: pieces of JSON that are read together, and rows that came singly.

Both keep the order of the answers: each span of rows (one picture's facts) has its place, whichever way it went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lightmeter.tables.arrays import array_of
from lightmeter.tables.bulk import read_pieces
from lightmeter.tables.colornames import CSS_NAME, css_names
from lightmeter.tables.columns import COLUMNS
from lightmeter.tables.extract import Asked, extract
from lightmeter.tables.shapes import entries
from lightmeter.tables.skeleton import pieces_of, value_of

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
        self._arrays: dict[str, pa.Array[Any]] = {}

    def column(self, name: str, arrow_type: pa.DataType, places: Any) -> pa.Array[Any]:
        """The values of the keys at `places`."""
        if name not in self._arrays:
            values = [getattr(key.asked if name in _ASKED else key, name) for key in self._keys]
            self._arrays[name] = array_of(values, arrow_type)
        return self._arrays[name].take(pa.array(places))

    def asked(self, place: int) -> Asked:
        """What the descriptions under a key were asked for in."""
        return self._keys[place].asked


class Buffer:
    """Rows of one table.

    Args:
        table: Its name.
        extra: The manifest's own columns, for `assets`.
    """

    def __init__(self, table: str, extra: Sequence[pa.Field[Any]] = ()) -> None:
        self.table = table
        own = [column for column in COLUMNS[table] if column.name not in _TOLD_ELSEWHERE.get(table, ())]
        self._types = {column.name: column.type for column in own} | {field.name: field.type for field in extra}
        self._clear()

    def _clear(self) -> None:
        self._keys: list[int] = []  # of each span: its key's place among all keys
        self._values: list[Any] = []  # features as skeletons have them
        self._value_spans: list[int] = []  # the span that each of them is
        self._columns: dict[str, list[Any]] = {name: [] for name in self._types}
        self._counts: list[int] = []  # rows of each span that is in the columns
        self._column_spans: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add_feature(self, key: int, value: Any) -> None:
        """A feature of a skeleton; it is read later, with others."""
        self._value_spans.append(len(self._keys))
        self._keys.append(key)
        self._values.append(value)

    def add_columns(self, key: int, columns: Mapping[str, list[Any]], count: int) -> None:
        """Rows as values, column by column."""
        span = len(self._keys)
        self._keys.append(key)
        self._extend(span, columns, count)

    def _extend(self, span: int, columns: Mapping[str, list[Any]], count: int) -> None:
        self._column_spans.append(span)
        self._counts.append(count)
        for name, into in self._columns.items():
            into.extend(columns[name])

    def split(self) -> Buffer:
        """All that is here, in a buffer of its own; this one is empty afterwards."""
        taken = copy(self)
        self._clear()
        return taken

    def table_of(self, keys: KeyArrays, schema: pa.Schema) -> pa.Table:
        """Everything as a table of the schema; call it once."""
        columns, spans = self._read(keys)
        places = np.array(self._keys, np.int64)[spans]
        for field in schema:
            if field.name not in columns and field.name != CSS_NAME:
                columns[field.name] = keys.column(field.name, field.type, places)
        if self.table == "colors":
            columns[CSS_NAME] = css_names(columns["red"], columns["green"], columns["blue"])
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _read(self, keys: KeyArrays) -> tuple[dict[str, Any], Any]:
        """The own columns of all rows, and the span of each row, in the order of the spans."""
        together = self._together()
        if together is None:
            for span, value in zip(self._value_spans, self._values, strict=True):
                told = entries(self.table, value_of(self.table, value))
                self._extend(span, extract(self.table, told, keys.asked(self._keys[span])), len(told.fields))
        elif not self._counts:
            return together
        columns: dict[str, Any] = {name: array_of(self._columns[name], of) for name, of in self._types.items()}
        spans = np.repeat(np.array(self._column_spans, np.int64), self._counts)
        if together is not None:
            columns = {name: pa.concat_arrays([array, together[0][name]]) for name, array in columns.items()}
            spans = np.concatenate([spans, together[1]])
        order = np.argsort(spans, kind="stable")
        return {name: array.take(pa.array(order)) for name, array in columns.items()}, spans[order]

    def _together(self) -> tuple[dict[str, Any], Any] | None:
        """What the waiting features say, read at once; None where any of them is unusual, or none waits."""
        pieces_each: list[int] = []
        pieces: list[Any] = []
        for value in self._values:
            found = pieces_of(self.table, value)
            pieces_each.append(len(found))
            pieces.extend(found)
        read = read_pieces(self.table, pieces, pieces_each) if pieces else None
        if read is None:
            return None
        of_pieces = np.repeat(np.array(self._value_spans, np.int64), pieces_each)
        return read.columns, np.repeat(of_pieces, read.rows)


_ASKED: Final = frozenset({"role", "language"})
_TOLD_ELSEWHERE: Final = {"colors": (CSS_NAME,), "descriptions": tuple(_ASKED)}
"""Columns that entries do not say: they come of other columns, or of the request."""
