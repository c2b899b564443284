"""Values of answers that keep to no shape, made what a column holds; a value of another kind is None. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lightmeter.facts.lenient_decode import to_float

__all__ = ["cleaned", "to_bool", "to_int_in_range"]


def cleaned(kind: str, values: Sequence[Any]) -> Sequence[Any]:
    """The values as a column of the kind takes them. Never raises."""
    clean = _CLEANERS.get(kind)
    return values if clean is None else [clean(value) for value in values]


def to_bool(value: Any) -> bool | None:
    """True or False, and nothing that passes for it."""
    return value if isinstance(value, bool) else None


def to_int_in_range(value: Any, low: int, high: int) -> int | None:
    """A whole number from `low` to below `high`; 2.0 and the text "2" are one."""
    figure = to_float(value)
    if figure is None or not figure.is_integer():
        return None
    whole = int(figure if isinstance(value, str) else value)
    return whole if low <= whole < high else None


_CLEANERS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": lambda value: value if isinstance(value, str) else None,
    "double": to_float,
    "bool": to_bool,
    "int32": lambda value: to_int_in_range(value, -(2**31), 2**31),
    "uint8": lambda value: to_int_in_range(value, 0, 2**8),
}
"""Polygons, emotions and vectors are made by our own hands."""
