"""Lists of whatever was answered become Arrow arrays; a value of the wrong type becomes null. Pure.

The usual case, all values right, is one call into Arrow; only a column with a wrong value is looked at one by one.
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
    """The values as an array of the type; null where a value does not fit. Never raises.

    Moments may be aware datetimes, seconds since the epoch, or ISO 8601 texts; without a zone they are UTC.
    """
    try:
        array = _at_once(values, arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        array = None
    if array is not None:
        return array
    clean = _cleaner(arrow_type)
    return pa.array([clean(value) for value in values], arrow_type)


def _at_once(values: list[Any], arrow_type: pa.DataType) -> pa.Array[Any] | None:
    """The array by one call; None, or an error of Arrow's, where the values must be looked at one by one."""
    if kinds.is_integer(arrow_type) or kinds.is_floating(arrow_type):
        # Told the type, Arrow would cut 1.5 to 1 and take True for 1: let it say what it sees.
        seen = pa.array(values)
        fits = kinds.is_integer(seen.type) or kinds.is_null(seen.type)
        if kinds.is_floating(seen.type) and kinds.is_floating(arrow_type):
            fits = pc.all(pc.is_finite(seen), min_count=0).as_py()
        return seen.cast(arrow_type) if fits else None
    if kinds.is_temporal(arrow_type) or kinds.is_list(arrow_type):
        return None  # an int would pass for microseconds, a text for a list of letters
    return pa.array(values, arrow_type)


def _cleaner(arrow_type: pa.DataType) -> Callable[[Any], Any]:
    for fits, clean in _CLEANERS:
        if fits(arrow_type):
            return clean
    if kinds.is_integer(arrow_type):
        # The width counts one sign bit where there is one.
        signed, bits = kinds.is_signed_integer(arrow_type), arrow_type.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
        return lambda value: to_int_in_range(value, low, high)
    if kinds.is_timestamp(arrow_type):
        return _moment if arrow_type.tz else _naive_moment
    return lambda value: value


def _text(value: Any) -> str | None:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _texts(value: Any) -> list[str | None] | None:
    return [_text(one) for one in value] if isinstance(value, (list, tuple)) else None


def _moment(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        seconds = to_float(value)
        return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _naive_moment(value: Any) -> datetime | None:
    moment = _moment(value)
    return None if moment is None else moment.replace(tzinfo=None)


def _day(value: Any) -> date | None:
    try:
        return date.fromisoformat(value[:10]) if isinstance(value, str) else value if isinstance(value, date) else None
    except ValueError:
        return None


_CLEANERS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...]] = (
    (kinds.is_string, _text),
    (kinds.is_floating, to_float),
    (kinds.is_boolean, to_bool),
    (kinds.is_date, _day),
    (lambda arrow_type: kinds.is_list(arrow_type) and kinds.is_string(arrow_type.value_type), _texts),
)
