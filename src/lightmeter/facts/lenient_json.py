"""Lenient reading of the JSON in the bytes of an answer. Pure.

An answer that was paid for must not be lost because of one invalid value. If orjson refuses an answer, Python's own
reader reads it again:

- Bytes that are not UTF-8 become U+FFFD, and half a surrogate pair becomes `?`.
- NaN, infinities and numbers beyond the range of a double become None.
- Bytes after the JSON value are ignored.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

_UTF8_MARK: Final = b"\xef\xbb\xbf"
_MAX_DIGITS: Final = 4000
"""Numbers with more characters become None, because Python refuses to read integers of more than 4300 digits."""
_MIN_INTEGER: Final = -(1 << 63)
_MAX_INTEGER: Final = (1 << 64) - 1
"""orjson reads integers from `_MIN_INTEGER` to `_MAX_INTEGER` as integers, and others as floating-point numbers."""


def parse_object_lenient(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object at the start of `body`; None if no JSON object starts there. Never raises."""
    data = loads_lenient(body)
    return data if isinstance(data, dict) else None


def parse_object_strict(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `body`, or None if `body` is not strict JSON (RFC 8259) or holds no object.

    A byte order mark at the start is ignored.
    """
    try:
        data = orjson.loads(body.removeprefix(_UTF8_MARK))
    except orjson.JSONDecodeError:
        return None
    return data if isinstance(data, dict) else None


def loads_lenient(raw: bytes) -> Any:
    """Return the JSON value at the start of `raw`; None if no JSON value starts there. Never raises."""
    body = raw.removeprefix(_UTF8_MARK)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            value, _ = _DECODER.raw_decode(body.decode("utf-8", "replace").lstrip())
            return _without_surrogates(value)
        except (ValueError, RecursionError):
            return None


def _number(text: str) -> float | None:
    """Return the number that a JSON text states; None if it has too many digits or is beyond the range of a double."""
    if len(text) > _MAX_DIGITS:
        return None
    try:
        number = int(text) if text.lstrip("-").isdecimal() else float(text)
        if not _MIN_INTEGER <= number <= _MAX_INTEGER:  # as orjson reads it
            number = float(number)
        return number if abs(number) < float("inf") else None
    except OverflowError:
        return None


_DECODER: Final = json.JSONDecoder(strict=False, parse_constant=lambda _: None, parse_int=_number, parse_float=_number)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_without_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(one) for key, one in value.items()}
    return value
