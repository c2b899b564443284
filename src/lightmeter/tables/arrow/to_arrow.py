"""Conversion of lists of values of any type to Arrow arrays; a value of the wrong type becomes null. Pure.

Arrow converts a list of valid values in one call. Only a list with an invalid value is converted value by value.
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


def array_of(values: list[Any], arrow_type: pa.DataType) -> pa.Array[Any]:
    """Return the values as an Arrow array of `arrow_type`, with null for each value that does not fit. Never raises.

    A timestamp may be a datetime, a number of seconds since the epoch, or an ISO 8601 text. A timestamp without a time
    zone is taken as UTC.
    """
    try:
        array = _convert_all(values, arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        array = None
    if array is not None:
        return array
    coerce = _coercion_for(arrow_type)
    return pa.array([coerce(value) for value in values], arrow_type)


def _convert_all(values: list[Any], arrow_type: pa.DataType) -> pa.Array[Any] | None:
    """Convert the values in one call of Arrow; return None if Arrow might convert some of them to wrong values.

    Return None for all timestamp, date and list types. For an integer type, return None unless all values are integers
    or None. For a float type, return None unless all values are finite numbers or None.

    Raises:
        pa.ArrowException: Arrow cannot convert a value.
    """
    if kinds.is_integer(arrow_type) or kinds.is_floating(arrow_type):
        # If we gave the type, Arrow would cut 1.5 to 1 and accept True as 1. So it infers the type first.
        inferred = pa.array(values)
        fits = kinds.is_integer(inferred.type) or kinds.is_null(inferred.type)
        if kinds.is_floating(inferred.type) and kinds.is_floating(arrow_type):
            fits = pc.all(pc.is_finite(inferred), min_count=0).as_py()
        return inferred.cast(arrow_type) if fits else None
    if kinds.is_temporal(arrow_type) or kinds.is_list(arrow_type):
        return None  # Arrow would read an int as microseconds and a text as a list of letters
    return pa.array(values, arrow_type)


def _coercion_for(arrow_type: pa.DataType) -> Callable[[Any], Any]:
    for fits, coerce in _COERCIONS:
        if fits(arrow_type):
            return coerce
    if kinds.is_integer(arrow_type):
        # The bit width of a signed type includes its sign bit.
        signed, bits = kinds.is_signed_integer(arrow_type), arrow_type.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
        return lambda value: to_int_in_range(value, low, high)
    if kinds.is_timestamp(arrow_type):
        return _timestamp if arrow_type.tz else _naive_timestamp
    return lambda value: value


def _text(value: Any) -> str | None:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _texts(value: Any) -> list[str | None] | None:
    return [_text(item) for item in value] if isinstance(value, (list, tuple)) else None


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
