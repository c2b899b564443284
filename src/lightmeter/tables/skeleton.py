"""The bones of an answer: where each asset's features stand in its bytes, without a look at the entries. Pure.

Nearly all answers have the shape of the contract. Of these, compiled code finds the features and checks that the JSON
around and inside them is well-formed; the entries stay bytes, until those of many answers are read at once (`bulk.py`).
An answer of any other shape has no skeleton, and goes the long way through `shapes.py`, which accepts everything.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, Final

import msgspec

from lightmeter.tables.extract import FACTS
from lightmeter.tables.shapes import loads

__all__ = ["KEYED", "LISTED", "decode", "pieces_of", "value_of"]

KEYED: Final = ("tags", "colors")
"""Features that stand under open-ended keys: a list of entries under each."""

LISTED: Final = ("nsfw", "descriptions")
"""Features that are one list of entries. The others' entries are pieces of their own: their tables keep them whole."""


def decode(raw: bytes) -> Any:
    """The answer as an object with the attributes `all.assets`, `all.errors` and those of the request's echo.

    An asset and a frame have one attribute for each feature, None where it is not answered: see `pieces_of`.

    Returns:
        None where the answer has no such skeleton.
    """
    try:
        return _decoder.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def pieces_of(table: str, value: Any) -> list[Any]:
    """The pieces of JSON that a feature is made of, as bytes: its lists of entries, or its entries."""
    if table in KEYED:
        return list(value.values())
    return [value] if table in LISTED else value


def value_of(table: str, value: Any) -> Any:
    """A feature as the JSON value that it is."""
    if table in KEYED:
        return {key: loads(bytes(piece)) for key, piece in value.items()}
    return loads(bytes(value)) if table in LISTED else [loads(bytes(piece)) for piece in value]


def _answer() -> Any:
    struct = msgspec.defstruct
    kinds = {table: GenericAlias(dict, (str, msgspec.Raw)) for table in KEYED} | dict.fromkeys(LISTED, msgspec.Raw)
    features: list[Any] = []
    for table in FACTS:
        kind = kinds.get(table, GenericAlias(list, (msgspec.Raw,)))
        features.append((table, kind, None) if table in LISTED else (table, kind | None, None))
    frames = GenericAlias(list, (struct("Frame", [*features, ("index", Any, None)], gc=False),))
    assets = GenericAlias(list, (struct("Asset", [*features, ("frames", frames | None, None)], gc=False),))
    results = struct("Results", [("assets", assets), ("errors", Any, None)], gc=False)
    echo = [(name, Any, None) for name in ("request_id", "role", "language", "backends")]
    return struct("Answer", [("all", results), *echo], gc=False)


_decoder: Final[Any] = msgspec.json.Decoder(_answer())
