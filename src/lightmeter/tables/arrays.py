"""Lists of values of any type become Arrow arrays; a value of the wrong type becomes null. Pure.

A list without wrong values is converted by one call; only a list with a wrong value is checked one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from lightmeter.facts.coerce import to_bool, to_int_in_range
from lightmeter.facts.lenient_decode import to_float

__all__ = ["array_of"]


def array_of(values: list[Any], arrow_type: pa.DataType) -> pa.Array[Any]:
    """Return the values as an array of the type; null where a value does not fit. Never raises.

    Timestamps may be aware datetimes, seconds since the epoch, or ISO 8601 texts; without a zone they are UTC.
    """
    try:
        array = _at_once(values, arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        array = None
    if array is not None:
        return array
    coerce = _coercion(arrow_type)
    return pa.array([coerce(value) for value in values], arrow_type)


def _at_once(values: list[Any], arrow_type: pa.DataType) -> pa.Array[Any] | None:
    """Return the array by one call; None, or raise an error of Arrow, where the values must be checked one by one."""
    if kinds.is_integer(arrow_type) or kinds.is_floating(arrow_type):
        # With the type given, Arrow would cut 1.5 to 1 and take True for 1: so it infers the type first.
        inferred = pa.array(values)
        fits = kinds.is_integer(inferred.type) or kinds.is_null(inferred.type)
        if kinds.is_floating(inferred.type) and kinds.is_floating(arrow_type):
            fits = pc.all(pc.is_finite(inferred), min_count=0).as_py()
        return inferred.cast(arrow_type) if fits else None
    if kinds.is_temporal(arrow_type) or kinds.is_list(arrow_type):
        return None  # an int would pass for microseconds, a text for a list of letters
    return pa.array(values, arrow_type)


def _coercion(arrow_type: pa.DataType) -> Callable[[Any], Any]:
    for fits, coerce in _COERCIONS:
        if fits(arrow_type):
            return coerce
    if kinds.is_integer(arrow_type):
        # The width counts one sign bit where there is one.
        signed, bits = kinds.is_signed_integer(arrow_type), arrow_type.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
        return lambda value: to_int_in_range(value, low, high)
    if kinds.is_timestamp(arrow_type):
        return _timestamp if arrow_type.tz else _naive_timestamp
    return lambda value: value


def _text(value: Any) -> str | None:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _texts(value: Any) -> list[str | None] | None:
    return [_text(one) for one in value] if isinstance(value, (list, tuple)) else None


def _timestamp(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        seconds = to_float(value)
        return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _naive_timestamp(value: Any) -> datetime | None:
    timestamp = _timestamp(value)
    return None if timestamp is None else timestamp.replace(tzinfo=None)


def _day(value: Any) -> date | None:
    try:
        return date.fromisoformat(value[:10]) if isinstance(value, str) else value if isinstance(value, date) else None
    except ValueError:
        return None


_COERCIONS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...]] = (
    (kinds.is_string, _text),
    (kinds.is_floating, to_float),
    (kinds.is_boolean, to_bool),
    (kinds.is_date, _day),
    (lambda arrow_type: kinds.is_list(arrow_type) and kinds.is_string(arrow_type.value_type), _texts),
)
