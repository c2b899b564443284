"""Conversion of JSON values to the type of a column; a value that does not fit becomes None. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from lightmeter.facts.lenient_decode import to_float


def coerce_values(kind: str, values: Sequence[Any]) -> Sequence[Any]:
    """Convert the values to the column type `kind`, such as `int32`. A value that does not fit becomes None.

    A type that `_COERCIONS` lacks needs no conversion: the values are returned unchanged. Never raises.
    """
    coerce = _COERCIONS.get(kind)
    return values if coerce is None else [coerce(value) for value in values]


def to_bool(value: Any) -> bool | None:
    """Return `value` if it is a boolean, else None."""
    return value if isinstance(value, bool) else None


def to_int_in_range(value: Any, low: int, high: int) -> int | None:
    """Return `value` as an integer if it is a whole number from `low` to `high - 1`; else None.

    `value` may also be a float such as 2.0 or a text such as "2".
    """
    number = to_float(value)
    if number is None or not number.is_integer():
        return None
    whole = int(number if isinstance(value, str) else value)
    return whole if low <= whole < high else None


_COERCIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": lambda value: value if isinstance(value, str) else None,
    "double": to_float,
    "bool": to_bool,
    "int32": lambda value: to_int_in_range(value, -(2**31), 2**31),
    "uint8": lambda value: to_int_in_range(value, 0, 2**8),
}
"""Column type → function that converts a value to it, or returns None if the value does not fit.

The other column types (polygons, emotions, vectors, raw JSON) need no conversion: `extract` returns the right type.
"""
