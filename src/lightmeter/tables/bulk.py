"""Entries of many answers, read at once: their JSON goes straight into Arrow columns, with no object for a value. Pure.

The pieces that `skeleton.py` found are put together, one a line, and read by Arrow's own JSON reader, told the types of
the contract. Where anything is not as the contract says (a text for a number, a null for an entry, a number beyond a
double), the table's pieces are refused as a whole and go the long way; both ways lead to the same rows.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lightmeter.tables.arrays import array_of
from lightmeter.tables.columns import COLUMNS
from lightmeter.tables.extract import whole_texts
from lightmeter.tables.faces import FACE_COLUMNS, read_face
from lightmeter.tables.severity import severities
from lightmeter.tables.skeleton import KEYED, LISTED

__all__ = ["Read", "read_pieces"]

_CORNERS: Final = pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float64())]))
_OUTLINE: Final = pa.struct([("vertices", _CORNERS)])
_SPELLINGS: Final = ("boundingPoly",)
"""Fields that only unusual entries have; they are read to be noticed."""


class Read(NamedTuple):
    """Rows of one table.

    Attributes:
        columns: The table's own columns that entries say, by name.
        rows: Rows of each piece, shape (pieces,).
    """

    columns: dict[str, pa.Array[Any]]
    rows: Any


class _UnusualError(Exception):
    """Something is not as the contract says."""


def read_pieces(table: str, pieces: list[Any], pieces_each: list[int]) -> Read | None:
    """Read the pieces of a table; None where any is unusual. Never raises.

    Args:
        table: One of the tables of facts.
        pieces: JSON in bytes.
        pieces_each: How many pieces each picture has; they add up to all.
    """
    try:
        if table in KEYED or table in LISTED:
            return _listed(table, pieces)
        read = _faces(pieces, pieces_each) if table == "faces" else _outlined(table, pieces, pieces_each)
        return Read(read, np.ones(len(pieces), np.int64))
    except (_UnusualError, pa.ArrowException, UnicodeDecodeError, orjson.JSONDecodeError):
        return None


def _listed(table: str, pieces: list[Any]) -> Read:
    """Pieces that are lists of entries."""
    read = _parsed(b'{"e":' + b'}\n{"e":'.join(pieces) + b"}\n", len(pieces), _LISTS[table])
    lists: Any = read.column("e").combine_chunks()
    entries = lists.flatten()
    _must(entries.null_count == 0 and (table not in KEYED or lists.null_count == 0))
    columns = dict(zip(entries.type.names, entries.flatten(), strict=True))
    if table in KEYED:  # an entry that does not say its key gets it, the long way
        _must(columns[_KEY[table]].null_count == 0)
    _must_be_finite(columns)
    if table == "nsfw":
        columns["severity"] = severities(columns["label"], columns["score"], columns["likelihood"])
    return Read(columns, np.diff(lists.offsets.to_numpy()))


def _outlined(table: str, pieces: list[Any], pieces_each: list[int]) -> dict[str, pa.Array[Any]]:
    """Pieces that are texts or brands: entries with an outline, which are kept whole too."""
    lines = b"\n" + b"\n".join(pieces) + b"\n"
    _must(b"\nnull\n" not in lines)
    read = _parsed(lines[1:], len(pieces), _ENTRIES[table])
    columns: dict[str, pa.Array[Any]] = {
        name: column.combine_chunks() for name, column in zip(read.column_names, read.columns, strict=True)
    }
    _must(all(columns[name].null_count == len(pieces) for name in _SPELLINGS))
    _must_be_finite(columns)
    columns["polygon"] = _polygons(columns["bounding_poly"])
    columns["score"] = pc.coalesce(columns["score"], columns["confidence"])
    columns["raw"] = _texts(pieces)
    if table == "texts":
        said = [_values(columns[name]) for name in ("text", "source", "is_full_text")]
        whole: list[bool | None] = []
        for first, end in pairwise(accumulate(pieces_each, initial=0)):
            whole += whole_texts(*(values[first:end] for values in said))
        columns["is_full_text"] = pa.array(whole, pa.bool_())
    return {column.name: columns[column.name] for column in COLUMNS[table]}


def _faces(pieces: list[Any], pieces_each: list[int]) -> dict[str, pa.Array[Any]]:
    """Pieces that are faces: their fields are each back end's own, so each is looked at."""
    faces = [orjson.loads(bytes(piece)) for piece in pieces]
    _must(all(type(face) is dict for face in faces))
    told = [read_face(face) for face in faces]
    values: dict[str, list[Any]] = {name: [face[name] for face in told] for name in FACE_COLUMNS}
    values["face"] = [place for count in pieces_each for place in range(count)]
    values["source"] = [face.get("source") for face in faces]
    types = {column.name: column.type for column in COLUMNS["faces"]}
    columns = {name: array_of(said, types[name]) for name, said in values.items()}
    return columns | {"raw": _texts(pieces)}


def _parsed(lines: bytes, count: int, schema: pa.Schema) -> pa.Table:
    """One row for each line of JSON."""
    if not lines.isascii():
        lines.decode()  # the reader takes bytes for UTF-8 unseen
    how = pj.ParseOptions(
        explicit_schema=schema,
        unexpected_field_behavior="ignore",
        newlines_in_values=lines.count(b"\n") != count,
    )
    whole = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    source: Any = pa.BufferReader(lines)
    read = pj.read_json(source, read_options=whole, parse_options=how)
    _must(read.num_rows == count)
    return read


def _polygons(outlines: Any) -> pa.Array[Any]:
    """The corners around each entry; null where there are none. A coordinate that is missing is 0."""
    vertices = pc.struct_field(outlines, "vertices")
    counts = pc.fill_null(pc.list_value_length(vertices), pa.scalar(0, pa.int32())).to_numpy()
    corners = vertices.flatten()
    _must(corners.null_count == 0)
    sides = {name: pc.fill_null(pc.struct_field(corners, name), 0.0) for name in ("x", "y")}
    _must_be_finite(sides)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    points: Any = pa.StructArray.from_arrays(list(sides.values()), names=list(sides))
    made: Any = pa.ListArray
    polygons: pa.Array[Any] = made.from_arrays(pa.array(offsets), points, type=_CORNERS, mask=pa.array(counts == 0))
    return polygons


def _texts(pieces: list[Any]) -> pa.Array[Any]:
    """Pieces as texts, as they came."""
    offsets = np.concatenate([[0], np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))]).astype(np.int32)
    return pa.StringArray.from_buffers(len(pieces), pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(pieces)))


def _values(column: Any) -> list[Any]:
    """The values of texts or flags, None for null: much sooner than Arrow's own `to_pylist`, one scalar each."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _must_be_finite(columns: dict[str, Any]) -> None:
    for column in columns.values():
        if pa.types.is_floating(column.type):
            _must(pc.all(pc.is_finite(column), min_count=0).as_py())


def _must(usual: bool) -> None:  # noqa: FBT001 (it reads as the condition it is given)
    if not usual:
        raise _UnusualError


_KEY: Final = {"tags": "name", "colors": "hex"}
_COMPUTED: Final = frozenset({"severity", "role", "language", "css_name"})


def _list_schema(table: str) -> pa.Schema:
    said = [(column.name, column.type) for column in COLUMNS[table] if column.name not in _COMPUTED]
    return pa.schema([("e", pa.list_(pa.struct(said)))])


def _entry_schema(table: str) -> pa.Schema:
    said = [(column.name, column.type) for column in COLUMNS[table] if column.name not in ("polygon", "raw")]
    outlines = [(name, _OUTLINE) for name in ("bounding_poly", *_SPELLINGS)]
    return pa.schema([*said, ("confidence", pa.float64()), *outlines])


_LISTS: Final[dict[str, pa.Schema]] = {table: _list_schema(table) for table in (*KEYED, *LISTED)}
_ENTRIES: Final[dict[str, pa.Schema]] = {table: _entry_schema(table) for table in ("texts", "brands")}
