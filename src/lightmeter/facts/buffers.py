"""Rows of one table on their way to bytes: entries of usual answers, and rows that came as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from struct import pack
from typing import Any, Final, NamedTuple, TypeAlias

from lightmeter.facts.bulk import lists_of
from lightmeter.facts.coerce import cleaned
from lightmeter.facts.columns import TABLE_COLUMNS
from lightmeter.facts.extract import TOLD_ELSEWHERE, extract
from lightmeter.facts.fast_decode import KEYED, WHOLE
from lightmeter.facts.lenient_decode import read_entries as entries_of
from lightmeter.facts.lenient_json import loads_lenient
from lightmeter.facts.packed import Pieces, column_of

__all__ = ["KEY_KINDS", "Buffer", "Key", "PackedTable", "packed_keys"]

KEY_KINDS: Final = {
    "item_id": "string",
    "url": "string",
    "frame": "int32",
    "run_id": "string",
    "role": "string",
    "language": "string",
}
"""The columns that a `Key` tells, and their kinds."""

Key: TypeAlias = tuple[str | None, str | None, int | None, str | None, str | None, str | None]
"""What `KEY_KINDS` names, over the rows of one picture. Bare: a named tuple takes ten times as long to make."""


_TOGETHER: Final = 128
"""Pictures whose entries are decoded together where a table keeps their JSON, and decodes it by itself."""


class PackedTable(NamedTuple):
    """Rows of one table, packed.

    Attributes:
        keys: Of each picture that has rows, its key's place among all keys, 32 bits each; ascending.
        counts: How many rows each has, 32 bits each.
        rows: How many rows there are.
        columns: The columns that entries say, by name.
    """

    keys: bytes
    counts: bytes
    rows: int
    columns: dict[str, Pieces]

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.keys) + len(self.counts) + sum(map(len, chain.from_iterable(self.columns.values())))


class Buffer:
    """Rows of one table, in the order of their keys.

    Args:
        table: Its name.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        own = [column for column in TABLE_COLUMNS[table] if column.name not in TOLD_ELSEWHERE.get(table, ())]
        self._kinds = {column.name: column.kind for column in own}
        self._columns = {name: column_of(name, kind) for name, kind in self._kinds.items()}
        self._together = _TOGETHER if table in WHOLE else 1
        self._waiting: list[Any] = []  # features of usual answers, and the places of their keys:
        self._waiting_keys: list[int] = []
        self._keys: list[int] = []
        self._counts: list[int] = []

    def add_features(self, keys: list[int], values: list[Any]) -> None:
        """What usual answers say of pictures, None where they say nothing.

        Args:
            keys: Of each picture, its key's place among all keys.
            values: Of each picture, this feature.
        """
        if None in values:
            keys = [key for key, value in zip(keys, values, strict=True) if value is not None]
            values = [value for value in values if value is not None]
        self._waiting_keys += keys
        self._waiting += values
        if len(self._waiting) >= self._together:
            self._read()

    def _read(self) -> None:
        keys, self._waiting_keys = self._waiting_keys, []
        values, self._waiting = self._waiting, []
        self._read_features(keys, values)

    def _read_features(self, keys: list[int], values: list[Any]) -> None:
        entries, counts = _entries(values, keyed=self._table in KEYED)
        if not entries:
            return
        lists = lists_of(self._table, entries, counts)
        if lists is not None:
            self._add(keys, counts, lists)
        elif len(keys) > 1:
            for key, value in zip(keys, values, strict=True):
                self._read_features([key], [value])
        else:  # unusual where only the feature's own reader looks: this picture's goes the long way
            told = entries_of(self._table, [loads_lenient(bytes(piece)) for piece in entries])
            self.add_columns(keys[0], extract(self._table, told), len(told.fields))

    def add_columns(self, key: int, columns: Mapping[str, Sequence[Any]], count: int) -> None:
        """Rows of one key as any values, column by column."""
        self._read()
        if count:
            self._add([key], [count], {name: cleaned(kind, columns[name]) for name, kind in self._kinds.items()})

    def taken(self) -> PackedTable:
        """All that is here; nothing is kept."""
        self._read()
        keys, counts = self._keys, self._counts
        self._keys, self._counts = [], []
        columns = {name: column.taken() for name, column in self._columns.items()}
        return PackedTable(pack(f"{len(keys)}i", *keys), pack(f"{len(keys)}i", *counts), sum(counts), columns)

    def _add(self, keys: Sequence[int], counts: Sequence[int], lists: Mapping[str, Sequence[Any]]) -> None:
        self._keys += keys
        self._counts += counts
        for name, column in self._columns.items():
            column.add(lists[name])


def packed_keys(keys: Sequence[Key]) -> dict[str, Pieces]:
    """The columns of `KEY_KINDS` over these keys."""
    packed = {}
    for place, (name, kind) in enumerate(KEY_KINDS.items()):
        column = column_of(name, kind)
        column.add([key[place] for key in keys])
        packed[name] = column.taken()
    return packed


def _entries(values: Sequence[Any], *, keyed: bool) -> tuple[list[Any], list[int]]:
    """All entries of a feature of many pictures, and how many each has."""
    if not keyed:
        return list(chain.from_iterable(values)), list(map(len, values))
    groups = list(chain.from_iterable(map(dict.values, values)))
    entries = list(chain.from_iterable(groups))
    if len(entries) == len(groups) and all(groups):  # one under each key, as usual
        return entries, list(map(len, values))
    return entries, [sum(map(len, value.values())) for value in values]
