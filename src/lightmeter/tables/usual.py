"""Answers of the usual shape, decoded by compiled code straight into typed entries. Pure.

Nearly all answers have the shape of the contract to the letter. For them nothing has to be looked at twice: the decoder
checks each value's type as it reads. An answer with anything unusual in it is refused whole, and goes the long way
through `shapes.py`, which accepts everything; both ways lead to the same rows.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from lightmeter.tables.columns import COLUMNS
from lightmeter.tables.severity import severity

__all__ = ["TYPED", "columns_of", "decode", "entries_of"]

_COMPUTED: Final = frozenset({"severity", "role", "language"})

TYPED: Final = {
    table: tuple(column.name for column in COLUMNS[table] if column.name not in _COMPUTED)
    for table in ("tags", "colors", "nsfw", "descriptions")
}
"""Tables whose entries are typed, with the columns that an entry says itself; the other features stay as they came."""

_KEYED: Final = {"tags": "name", "colors": "hex"}
"""Features that stand under open-ended keys, and what the key says: an entry must say it too to be usual."""


def decode(raw: bytes) -> Any:
    """The answer as typed objects with the attributes `all.assets`, `all.errors` and those of the request's echo.

    An asset and a frame have one attribute for each feature: typed lists (`nsfw`, `descriptions`), typed lists by key
    (`tags`, `colors`), or plain JSON values.

    Returns:
        None where the answer is not of the usual shape.
    """
    try:
        return _decoder.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def entries_of(table: str, value: Any) -> list[Any]:
    """The typed entries of one feature in the order of the answer."""
    return list(chain.from_iterable(value.values())) if table in _KEYED else value


def columns_of(table: str, entries: list[Any]) -> dict[str, list[Any]]:
    """What the entries say, column by column, with what is computed from it; without what the request says."""
    columns = {name: list(map(read, entries)) for name, read in _READERS[table]}
    if table == "nsfw":
        said = zip(columns["label"], columns["score"], columns["likelihood"], strict=True)
        columns["severity"] = [severity(*one) for one in said]
    return columns


def _entry(table: str) -> Any:
    """The type of one entry: what its columns hold, as they may be answered."""
    types = {column.name: column.type for column in COLUMNS[table]}
    byte = Annotated[int, msgspec.Meta(ge=0, le=255)]
    kinds = {pa.string(): str, pa.float64(): float, pa.uint8(): byte}
    needed = _KEYED.get(table)
    fields: list[Any] = [(needed, str)] if needed else []
    fields += [(name, kinds[types[name]] | None, None) for name in TYPED[table] if name != needed]
    return msgspec.defstruct(table, fields, gc=False)


def _answer() -> Any:
    struct = msgspec.defstruct
    features: list[Any] = []
    for table in TYPED:
        listed = GenericAlias(list, (_entry(table),))
        features.append((table, (GenericAlias(dict, (str, listed)) if table in _KEYED else listed) | None, None))
    features += [(table, Any, None) for table in ("faces", "texts", "brands")]
    frames = GenericAlias(list, (struct("Frame", [*features, ("index", Any, None)], gc=False),))
    assets = GenericAlias(list, (struct("Asset", [*features, ("frames", frames | None, None)], gc=False),))
    results = struct("Results", [("assets", assets), ("errors", Any, None)], gc=False)
    echo = [(name, Any, None) for name in ("request_id", "role", "language", "backends")]
    return struct("Answer", [("all", results), *echo], gc=False)


_decoder: Final[Any] = msgspec.json.Decoder(_answer())
_READERS: Final = {table: [(name, attrgetter(name)) for name in names] for table, names in TYPED.items()}
