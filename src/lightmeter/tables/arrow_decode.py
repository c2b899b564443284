"""Packed facts become Arrow tables: arrays laid over the bytes, without looking at a single value. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lightmeter.facts.buffers import KEY_KINDS, PackedTable
from lightmeter.facts.columns import CSS_NAME, TABLE_COLUMNS
from lightmeter.facts.flatten import Packed
from lightmeter.facts.packed import CODES, Pieces
from lightmeter.tables.color_names import css_names
from lightmeter.tables.parts import as_schema
from lightmeter.tables.schema import ARROW_TYPES, schema

__all__ = ["Keys", "array_of_packed", "table_of", "tables_of"]


class Keys:
    """The keys of one `Packed`, column by column; a column is made when it is first asked for."""

    def __init__(self, columns: Mapping[str, Pieces]) -> None:
        self._columns = columns
        self._arrays: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        """What each key says, shape (keys,)."""
        if name not in self._arrays:
            self._arrays[name] = array_of_packed(KEY_KINDS[name], [self._columns[name]])
        return self._arrays[name]


def tables_of(packed: Packed) -> dict[str, pa.Table]:
    """The tables of some answers, those alone that have rows."""
    keys = Keys(packed.keys)
    return {table: as_schema(table_of(table, [(keys, rows)]), schema(table)) for table, rows in packed.tables.items()}


def table_of(table: str, packed: Sequence[tuple[Keys, PackedTable]]) -> pa.Table:
    """Rows of one table, one after the other, under the schema's names; texts of keys are dictionaries."""
    kinds = {column.name: column.kind for column in TABLE_COLUMNS[table]}
    names = schema(table).names
    places = _places(packed)
    told = packed[0][1].columns
    columns: dict[str, Any] = {}
    for name in names:
        if name in told:
            columns[name] = array_of_packed(kinds[name], [rows.columns[name] for _, rows in packed])
        elif name != CSS_NAME:
            columns[name] = _of_keys(name, [keys for keys, _ in packed], places)
    if CSS_NAME in names:
        columns[CSS_NAME] = css_names(columns["red"], columns["green"], columns["blue"])
    return pa.Table.from_arrays([columns[name] for name in names], names)


def array_of_packed(kind: str, packed: Sequence[Pieces]) -> Any:
    """Values of one kind, one after the other, as an Arrow array; see `facts/packed.py` for the pieces."""
    if kind == "string":
        return _texts(packed)
    if kind == "polygon":
        return _polygons(packed)
    if kind == "emotions":
        return _emotions(packed)
    if kind == "vector":
        return _vectors(packed)
    values = b"".join([pieces[1] for pieces in packed])
    of = np.dtype(CODES[kind])
    count = len(values) // of.itemsize
    known = _known(packed, [len(pieces[1]) // of.itemsize for pieces in packed])
    bits = _bits(np.frombuffer(values, of)) if kind == "bool" else pa.py_buffer(values)
    return pa.Array.from_buffers(ARROW_TYPES[kind], count, [known, bits])


def _texts(packed: Sequence[Pieces]) -> Any:
    offsets = _offsets([lengths for _, lengths, _ in packed])
    known = _known(packed, [len(lengths) // _INT.itemsize for _, lengths, _ in packed])
    texts = b"".join([texts for _, _, texts in packed])
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [known, pa.py_buffer(offsets), pa.py_buffer(texts)])


def _polygons(packed: Sequence[Pieces]) -> Any:
    offsets = _offsets([counts for counts, _, _ in packed])
    sides = [array_of_packed("double", [(b"", pieces[side]) for pieces in packed]) for side in (1, 2)]
    points: Any = pa.StructArray.from_arrays(sides, names=["x", "y"])
    known = _bits(np.diff(offsets) > 0)
    return _lists("polygon", offsets, known, points)


def _vectors(packed: Sequence[Pieces]) -> Any:
    offsets = _offsets([counts for counts, _ in packed])
    coordinates = b"".join([coordinates for _, coordinates in packed])
    inner: Any = pa.Array.from_buffers(pa.float32(), int(offsets[-1]), [None, pa.py_buffer(coordinates)])
    return _lists("vector", offsets, _bits(np.diff(offsets) > 0), inner)


def _emotions(packed: Sequence[Pieces]) -> Any:
    offsets = _offsets([counts for _, counts, *_ in packed])
    known = _known(packed, [len(counts) // _INT.itemsize for _, counts, *_ in packed])
    names, scores = _texts([pieces[2:5] for pieces in packed]), array_of_packed("double", [p[5:] for p in packed])
    of: Any = ARROW_TYPES["emotions"]
    pairs: Any = pa.StructArray.from_arrays([names, scores], fields=[of.key_field, of.item_field])
    return _lists("emotions", offsets, known, pairs)


def _lists(kind: str, offsets: Any, known: Any, inner: Any) -> Any:
    return pa.Array.from_buffers(ARROW_TYPES[kind], len(offsets) - 1, [known, pa.py_buffer(offsets)], children=[inner])


def _known(packed: Sequence[Pieces], counts: Sequence[int]) -> Any:
    """A bit for each value that is not null, from the flags that stand first; None where none is null."""
    if not any(pieces[0] for pieces in packed):
        return None
    flags = [pieces[0] or b"\1" * count for pieces, count in zip(packed, counts, strict=True)]
    return _bits(np.frombuffer(b"".join(flags), np.uint8))


def _bits(flags: Any) -> Any:
    bits: Any = np.packbits(flags, bitorder="little")
    return pa.py_buffer(bits)


def _offsets(lengths: Sequence[bytes]) -> Any:
    """Where each value begins, and where the last ends, shape (n + 1,)."""
    counts = np.frombuffer(b"".join(lengths), _INT)
    offsets = np.zeros(len(counts) + 1, _INT)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _places(packed: Sequence[tuple[Keys, PackedTable]]) -> list[Any]:
    """The place of each row's key, for each of the packed."""
    return [np.repeat(np.frombuffer(rows.keys, _INT), np.frombuffer(rows.counts, _INT)) for _, rows in packed]


def _of_keys(name: str, keys: Sequence[Keys], places: Sequence[Any]) -> Any:
    """What the key of each row says, texts as a dictionary: most stand in many rows."""
    known = [of.column(name) for of in keys]
    starts = np.cumsum([0, *map(len, known[:-1])], dtype=_INT)
    rows = pa.array(np.concatenate([own + start for own, start in zip(places, starts, strict=True)]))
    values = pa.concat_arrays(known)
    if KEY_KINDS[name] == "string":
        told: Any = values.dictionary_encode()
        return pa.DictionaryArray.from_arrays(told.indices.take(rows), told.dictionary, safe=False)
    return values.take(rows) if values.null_count < len(values) else pa.nulls(len(rows), values.type)


_INT: Final = np.dtype(np.int32)
