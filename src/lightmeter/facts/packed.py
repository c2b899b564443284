"""Columns of facts as bytes: what a process hands to another, and what Arrow's arrays are made of. Pure.

Values are packed a few hundred at a time, while the processor still has the objects at hand that were just decoded, and
the objects are let go of. Texts are joined and numbers packed by one call each.

Each kind of column becomes so many pieces of bytes, in the machine's own order:

- texts (`string`): flags; lengths in bytes, 32 bits each; all texts in UTF-8
- numbers (`double`, `int32`, `uint8`) and flags (`bool`, a byte each): flags; values
- `polygon`: numbers of corners, 32 bits each; all x; all y. No corners stand for null.
- `vector`: numbers of coordinates, 32 bits each; all coordinates in single precision. No coordinates stand for null.
- `emotions`: flags; numbers of pairs; the pieces of the names; the pieces of the scores

where flags are a byte for each value, 0 for null, and nothing at all where no value is null.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from struct import error, pack
from typing import Any, Final, Protocol, TypeAlias

__all__ = ["CODES", "Column", "Pieces", "column_of"]

Pieces: TypeAlias = tuple[bytes, ...]

CODES: Final = {"double": "d", "int32": "i", "uint8": "B", "bool": "?"}
"""How `struct` calls the kinds of numbers."""


class Column(Protocol):
    """Values of one column, added in their order."""

    def add(self, values: Sequence[Any]) -> None:
        """Add values of the column's kind; None is null."""

    def taken(self) -> Pieces:
        """All of them, packed; nothing is kept."""


class _Known:
    """Which values are not null: a byte for each."""

    def __init__(self) -> None:
        self._flags: list[bytes] = []
        self._all = True

    def add_all(self, count: int) -> None:
        self._flags.append(b"\1" * count)

    def add(self, values: Sequence[Any]) -> None:
        """As far as they are not None."""
        self._flags.append(bytes([value is not None for value in values]))
        self._all = False

    def taken(self) -> bytes:
        flags = b"" if self._all else b"".join(self._flags)
        self._flags, self._all = [], True
        return flags


class _Texts:
    def __init__(self) -> None:
        self._known = _Known()
        self._pieces: list[bytes] = []
        self._lengths: list[bytes] = []

    def add(self, values: Sequence[str | None]) -> None:
        whole: Any = values
        try:
            joined = "".join(whole)
            self._known.add_all(len(values))
        except TypeError:  # there is a None
            self._known.add(values)
            whole = [value or "" for value in values]
            joined = "".join(whole)
        if joined.isascii():
            self._pieces.append(joined.encode())
            self._lengths.append(_counts(whole))
        else:
            pieces = [value.encode("utf-8", "replace") for value in whole]
            self._pieces += pieces
            self._lengths.append(_counts(pieces))

    def taken(self) -> Pieces:
        pieces = self._known.taken(), b"".join(self._lengths), b"".join(self._pieces)
        self._lengths, self._pieces = [], []
        return pieces


class _Jsons(_Texts):
    """Texts that may come as bytes of UTF-8."""

    def add(self, values: Sequence[Any]) -> None:
        if values and isinstance(values[0], str):
            super().add(values)
            return
        self._known.add_all(len(values))
        self._pieces.append(b"".join(values))
        self._lengths.append(_counts(values))


class _Numbers:
    def __init__(self, code: str) -> None:
        self._known = _Known()
        self._pieces: list[bytes] = []
        self._code = code

    def add(self, values: Sequence[float | None]) -> None:
        try:
            self._pieces.append(pack(f"{len(values)}{self._code}", *values))
            self._known.add_all(len(values))
        except error:  # there is a None
            self._add_known(values)

    def taken(self) -> Pieces:
        pieces = self._known.taken(), b"".join(self._pieces)
        self._pieces = []
        return pieces

    def _add_known(self, values: Sequence[float | None]) -> None:
        self._known.add(values)
        self._pieces.append(pack(f"{len(values)}{self._code}", *[0 if value is None else value for value in values]))


class _Flags(_Numbers):
    def add(self, values: Sequence[float | None]) -> None:
        self._add_known(values)  # a None would pass for False


class _Polygons:
    """Corners around entries, each with `x` and `y`."""

    def __init__(self) -> None:
        self._counts: list[bytes] = []
        self._sides = _Numbers("d"), _Numbers("d")

    def add(self, values: Sequence[Sequence[Any]]) -> None:
        corners = list(chain.from_iterable(values))
        self._sides[0].add([corner.x for corner in corners])
        self._sides[1].add([corner.y for corner in corners])
        self._counts.append(_counts(values))

    def taken(self) -> Pieces:
        counts, self._counts = b"".join(self._counts), []
        return counts, *(side.taken()[1] for side in self._sides)


class _Vectors:
    """Lists of numbers within single precision (IEEE 754), which has seven digits."""

    def __init__(self) -> None:
        self._counts: list[bytes] = []
        self._coordinates: list[bytes] = []

    def add(self, values: Sequence[Sequence[float] | None]) -> None:
        vectors = [value or () for value in values]
        self._coordinates += [array("f", vector).tobytes() for vector in vectors]
        self._counts.append(_counts(vectors))

    def taken(self) -> Pieces:
        pieces = b"".join(self._counts), b"".join(self._coordinates)
        self._counts, self._coordinates = [], []
        return pieces


class _Emotions:
    """Lists of pairs of a name and a score."""

    def __init__(self) -> None:
        self._known = _Known()
        self._counts: list[bytes] = []
        self._names, self._scores = _Texts(), _Numbers("d")

    def add(self, values: Sequence[Sequence[tuple[str, float | None]] | None]) -> None:
        self._known.add(values)
        said = [value or () for value in values]
        pairs = list(chain.from_iterable(said))
        self._names.add([name for name, _ in pairs])
        self._scores.add([score for _, score in pairs])
        self._counts.append(_counts(said))

    def taken(self) -> Pieces:
        counts, self._counts = b"".join(self._counts), []
        return self._known.taken(), counts, *self._names.taken(), *self._scores.taken()


def column_of(name: str, kind: str) -> Column:
    """An empty column of one of the kinds above; `raw` may be given bytes."""
    if kind == "string":
        return _Jsons() if name == "raw" else _Texts()
    return _KINDS[kind]()


def _counts(values: Sequence[Any]) -> bytes:
    """The length of each, as 32-bit integers."""
    return pack(f"{len(values)}i", *map(len, values))


def _numbers_of(code: str) -> Callable[[], Column]:
    return lambda: _Numbers(code)


_KINDS: Final[dict[str, Callable[[], Column]]] = {
    "polygon": _Polygons,
    "emotions": _Emotions,
    "vector": _Vectors,
    **{kind: _numbers_of(code) for kind, code in CODES.items()},
    "bool": lambda: _Flags(CODES["bool"]),
}
