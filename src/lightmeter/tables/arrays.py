"""Lists of whatever was answered become Arrow arrays; a value of the wrong type becomes null. Pure.

The usual case, all values right, is done at once; only a column with a wrong value is looked at one by one. Arrow's own
`pa.array` (and all that calls it: scalars, NumPy arrays both ways) imports pandas at its first call, which is 45 MB and
a third of a second; so what nearly every table holds is laid out here: texts, figures, flags, and lists of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as kinds

from lightmeter.tables.shapes import number

__all__ = ["array_of", "array_of_right", "figures", "listed", "offsets_of", "repeated", "wrapped"]


def array_of(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array[Any]:
    """The values as an array of the type; null where a value does not fit. Never raises.

    Moments may be aware datetimes, seconds since the epoch, or ISO 8601 texts; without a zone they are UTC.
    """
    lay_out = next((lay_out for fits, lay_out in _LAYOUTS if fits(arrow_type)), pa.array)
    if not kinds.is_temporal(arrow_type):  # an int would pass for microseconds
        try:
            array = lay_out(values, arrow_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            array = None
        if array is not None:
            return array
    clean = _cleaner(arrow_type)
    cleaned: Any = lay_out([clean(value) for value in values], arrow_type)
    return cleaned  # type: ignore[no-any-return]


def array_of_right(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array[Any]:
    """As `array_of`, of finite values of the type and nulls alone, which nobody looks at a second time.

    Raises:
        ValueError: A number is beyond the type; OverflowError says so too.
    """
    if kinds.is_floating(arrow_type):
        found = np.array(values, np.float64)  # takes a null for a NaN, and a whole number for a double
        lacks = np.isnan(found)
        return wrapped(found, valid=~lacks if lacks.any() else None)
    if kinds.is_uint8(arrow_type) and None not in values:
        return wrapped(np.frombuffer(bytes(values), np.uint8))
    return array_of(values, arrow_type)


def repeated(value: Any, count: int, arrow_type: pa.DataType) -> pa.Array[Any]:
    """One value as an array of `count`."""
    one: Any = array_of([value], arrow_type)
    return one.take(wrapped(np.zeros(count, np.int32)))  # type: ignore[no-any-return]


def wrapped(values: Any, arrow_type: pa.DataType | None = None, valid: Any = None) -> pa.Array[Any]:
    """NumPy's figures as an array, without copying them where they are contiguous.

    Args:
        values: Shape (n,); booleans, integers or floats.
        arrow_type: Of the same width; by default the one of the same name.
        valid: Booleans, shape (n,): where false, the array is null.
    """
    of = pa.from_numpy_dtype(values.dtype) if arrow_type is None else arrow_type
    values = np.ascontiguousarray(values)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(values)
    return pa.Array.from_buffers(of, len(values), [_bits(valid), data])


def figures(array: Any) -> tuple[Any, Any]:
    """The numbers of an array, shape (n,), as NumPy sees the very same memory, and where they are not null.

    Returns:
        What stands where the array is null is anything. Where none is null, the second is None.
    """
    start, count = array.offset, len(array)
    bits, data = array.buffers()
    seen = np.frombuffer(data, _NUMPY[array.type], start + count)[start:] if count else np.empty(0, _NUMPY[array.type])
    if not array.null_count:
        return seen, None
    return seen, np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=start + count)[start:] != 0


def listed(counts: Any, entries: pa.Array[Any], arrow_type: pa.DataType, valid: Any = None) -> pa.Array[Any]:
    """Lists (or maps) of so many of the entries each, shape (n,); null where `valid` is false."""
    buffers = [_bits(valid), pa.py_buffer(offsets_of(counts))]
    return pa.Array.from_buffers(arrow_type, len(counts), buffers, children=[entries])


def offsets_of(counts: Any) -> Any:
    """Where lists of so many entries begin and end, shape (n + 1,), as Arrow lays out texts and lists."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    if offsets[-1] > _MOST:
        raise OverflowError("an array holds at most 2 GiB of text")
    return offsets.astype(np.int32)


def _texts_at_once(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array[Any]:
    valid = None
    try:
        text = "".join(values)
    except TypeError:  # a null, or no text, which is one again
        valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        values = ["" if value is None else value for value in values]
        text = "".join(values)
    data = text.encode()
    lengths = map(len, values) if len(data) == len(text) else (len(value.encode()) for value in values)
    offsets = offsets_of(np.fromiter(lengths, np.int32, len(values)))
    return pa.Array.from_buffers(arrow_type, len(values), [_bits(valid), pa.py_buffer(offsets), pa.py_buffer(data)])


def _figures_at_once(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array[Any] | None:
    seen, is_whole = set(map(type, values)), kinds.is_integer(arrow_type)
    if not seen <= ({int, type(None)} if is_whole else {int, float, type(None)}):
        return None
    valid = None
    if type(None) in seen:
        valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        values = [0 if value is None else value for value in values]
    found = np.array(values, _NUMPY[arrow_type])  # what is beyond an integer of that width is an OverflowError
    return wrapped(found, arrow_type, valid) if is_whole or np.isfinite(found).all() else None


def _flags_at_once(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array[Any] | None:
    seen = set(map(type, values))
    if not seen <= {bool, type(None)}:
        return None
    found = np.fromiter((value is True for value in values), np.bool_, len(values))
    valid = None if type(None) not in seen else np.fromiter((value is not None for value in values), np.bool_)
    return wrapped(found, arrow_type, valid)


def _lists_at_once(values: Sequence[Any], arrow_type: Any) -> pa.Array[Any] | None:
    return _nested(values, arrow_type, lambda inner: array_of(inner, arrow_type.value_type), {str, type(None)})


def _maps_at_once(values: Sequence[Any], arrow_type: Any) -> pa.Array[Any] | None:
    def pairs(inner: Sequence[Any]) -> Any:
        sides = zip(*inner, strict=True) if inner else ((), ())
        kinds_of = (arrow_type.key_type, arrow_type.item_type)
        columns: list[Any] = [array_of(side, of) for side, of in zip(sides, kinds_of, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=[arrow_type.key_field, arrow_type.item_field])

    return _nested(values, arrow_type, pairs, {tuple})


def _nested(
    values: Sequence[Any], arrow_type: Any, make: Callable[[Sequence[Any]], Any], inner_types: set[type]
) -> pa.Array[Any] | None:
    """Lists of entries, one after another, and where each begins; None where anything is of another type."""
    if not set(map(type, values)) <= {list, tuple, type(None)}:
        return None
    told = [() if value is None else value for value in values]
    inner = list(chain.from_iterable(told))
    if not set(map(type, inner)) <= inner_types:
        return None
    counts = np.fromiter(map(len, told), np.int64, len(told))
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values)) if None in values else None
    return listed(counts, make(inner), arrow_type, valid)


def _bits(valid: Any) -> pa.Buffer | None:
    if valid is None:
        return None
    bits: Any = np.packbits(valid, bitorder="little")
    return pa.py_buffer(bits)


def _is_list_of_texts(arrow_type: Any) -> bool:
    return kinds.is_list(arrow_type) and kinds.is_string(arrow_type.value_type)


def _cleaner(arrow_type: pa.DataType) -> Callable[[Any], Any]:
    for fits, clean in _CLEANERS:
        if fits(arrow_type):
            return clean
    if kinds.is_integer(arrow_type):
        # The width counts one sign bit where there is one.
        signed, bits = kinds.is_signed_integer(arrow_type), arrow_type.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
        return lambda value: _integer(value, low, high)
    if kinds.is_timestamp(arrow_type):
        return _moment if arrow_type.tz else _naive_moment
    return lambda value: value


def _integer(value: Any, low: int, high: int) -> int | None:
    figure = number(value)
    if figure is None or not figure.is_integer():
        return None
    whole = int(value)
    return whole if low <= whole < high else None


def _text(value: Any) -> str | None:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _texts(value: Any) -> list[str | None] | None:
    return [_text(one) for one in value] if isinstance(value, (list, tuple)) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _moment(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        seconds = number(value)
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


_MOST: Final = 2**31 - 1

_NUMPY: Final[dict[Any, Any]] = {
    pa.from_numpy_dtype(np.dtype(name)): np.dtype(name)
    for name in ("float64", *(f"{sign}int{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)))
}

_LAYOUTS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], pa.Array[Any] | None]], ...]] = (
    (kinds.is_string, _texts_at_once),
    (lambda arrow_type: arrow_type in _NUMPY, _figures_at_once),
    (kinds.is_boolean, _flags_at_once),
    (_is_list_of_texts, _lists_at_once),
    (kinds.is_map, _maps_at_once),
)

_CLEANERS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...]] = (
    (kinds.is_string, _text),
    (kinds.is_floating, number),
    (kinds.is_boolean, _flag),
    (kinds.is_date, _day),
    (_is_list_of_texts, _texts),
)
