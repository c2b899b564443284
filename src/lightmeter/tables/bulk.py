"""Entries of many answers, as `usual.py` decodes them, become Arrow columns: one list and one array a column. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lightmeter.tables.arrays import array_of, array_of_right
from lightmeter.tables.columns import COLUMNS
from lightmeter.tables.extract import whole_texts
from lightmeter.tables.faces import FACE_COLUMNS, read_faces
from lightmeter.tables.severity import severities
from lightmeter.tables.usual import WHOLE, Brand, Color, Description, Nsfw, Tag, Text, decode_entries

__all__ = ["columns_at_once"]

_Columns = dict[str, Any]


def columns_at_once(table: str, entries: list[Any], ends: Sequence[int]) -> _Columns | None:
    """The columns that entries say, by name, as Arrow arrays of the contract's types.

    Args:
        table: One of the tables of facts.
        entries: Of its type in `usual.py`; JSON for the tables that keep it.
        ends: Where each picture's entries end; its first is where the last picture's end.

    Returns:
        None where any of the JSON is unusual.
    """
    if table not in WHOLE:
        return _arrays(table, _LISTS[table](entries))
    told = decode_entries(table, entries)
    if told is None:
        return None
    return _WHOLE_LISTS[table](told, ends) | {"raw": _texts(entries)}


def _arrays(table: str, lists: dict[str, list[Any]]) -> _Columns:
    """Lists of right values as arrays."""
    return {name: array_of_right(values, _TYPES[table][name]) for name, values in lists.items()}


# Attributes by name, one list at a time: the quickest way that Python has to turn objects into columns.


def _tags(entries: list[Tag]) -> dict[str, list[Any]]:
    return {
        "name": [entry.name for entry in entries],
        "score": [entry.score for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _colors(entries: list[Color]) -> dict[str, list[Any]]:
    return {
        "hex": [entry.hex for entry in entries],
        "score": [entry.score for entry in entries],
        "pixel_fraction": [entry.pixel_fraction for entry in entries],
        "red": [entry.red for entry in entries],
        "green": [entry.green for entry in entries],
        "blue": [entry.blue for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _nsfw(entries: list[Nsfw]) -> dict[str, list[Any]]:
    labels = [entry.label for entry in entries]
    scores = [entry.score for entry in entries]
    likelihoods = [entry.likelihood for entry in entries]
    return {
        "label": labels,
        "score": scores,
        "likelihood": likelihoods,
        "severity": severities(labels, scores, likelihoods),
        "source": [entry.source for entry in entries],
    }


def _descriptions(entries: list[Description]) -> dict[str, list[Any]]:
    return {
        "description": [entry.description for entry in entries],
        "source": [entry.source for entry in entries],
    }


def _read_texts(entries: list[Text], ends: Sequence[int]) -> _Columns:
    texts = [entry.text for entry in entries]
    sources = [entry.source for entry in entries]
    said = [entry.is_full_text for entry in entries]
    whole: list[bool | None] = []
    for first, end in pairwise([0, *ends]):
        whole += whole_texts(texts[first:end], sources[first:end], said[first:end])
    return _arrays("texts", {"text": texts, "is_full_text": whole, "source": sources}) | _outlined(entries)


def _read_brands(entries: list[Brand], _: Sequence[int]) -> _Columns:
    names, sources = [entry.name for entry in entries], [entry.source for entry in entries]
    return _arrays("brands", {"name": names, "source": sources}) | _outlined(entries)


def _outlined(entries: Sequence[Text | Brand]) -> _Columns:
    scores = [entry.confidence if entry.score is None else entry.score for entry in entries]
    return {"score": pa.array(scores, pa.float64()), "polygon": _polygons(entries)}


def _polygons(entries: Sequence[Text | Brand]) -> Any:
    """The corners around each entry; null where there are none."""
    outlines = [entry.bounding_poly for entry in entries]
    around = [(outline.vertices or ()) if outline is not None else () for outline in outlines]
    corners = list(chain.from_iterable(around))
    sides = [pa.array(side, pa.float64()) for side in ([c.x for c in corners], [c.y for c in corners])]
    points: Any = pa.StructArray.from_arrays(sides, names=["x", "y"])
    counts = np.fromiter(map(len, around), np.int32, len(around))
    made: Any = pa.ListArray
    return made.from_arrays(_offsets(counts), points, type=_TYPES["texts"]["polygon"], mask=pa.array(counts == 0))


def _read_faces(faces: list[dict[str, Any]], ends: Sequence[int]) -> _Columns:
    lists = read_faces(faces)
    columns = {name: array_of(lists[name], _TYPES["faces"][name]) for name in FACE_COLUMNS}
    columns["source"] = array_of([face.get("source") for face in faces], pa.string())
    columns["face"] = pa.array(
        [place for first, end in pairwise([0, *ends]) for place in range(end - first)], pa.int32()
    )
    return columns


def _texts(pieces: Sequence[Any]) -> Any:
    """JSON as texts, as it came."""
    offsets = _offsets(np.fromiter(map(len, pieces), np.int32, len(pieces)))
    return pa.StringArray.from_buffers(len(pieces), offsets.buffers()[1], pa.py_buffer(b"".join(pieces)))


def _offsets(counts: Any) -> Any:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets)


_TYPES: Final = {table: {column.name: column.type for column in columns} for table, columns in COLUMNS.items()}

_LISTS: Final[dict[str, Callable[[Any], dict[str, list[Any]]]]] = {
    "tags": _tags,
    "colors": _colors,
    "nsfw": _nsfw,
    "descriptions": _descriptions,
}
_WHOLE_LISTS: Final[dict[str, Callable[[Any, Sequence[int]], _Columns]]] = {
    "texts": _read_texts,
    "brands": _read_brands,
    "faces": _read_faces,
}
