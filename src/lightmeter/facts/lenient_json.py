"""Lenient reading of the JSON in the bytes of an answer. Pure.

An answer that was paid for must not be lost because of one invalid value. If orjson refuses an answer, Python's own
reader reads it again:

- UTF-16 and UTF-32 are read, too. Other bytes that are not UTF-8 become U+FFFD. Half a surrogate pair becomes `?`.
- NaN, infinities and numbers beyond the range of a double become None.
- Bytes after the JSON value are ignored.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

_UTF8_MARK: Final = b"\xef\xbb\xbf"
_ANSWER_FIELDS: Final = ("all", "request_id", "response_uri")
"""Fields by which a JSON object is recognized as an answer to a request or a poll."""
_QUERY_FIELDS: Final = ("credits", "backends")
"""Fields by which a JSON object is recognized as an answer to a query."""
_MAX_LEVELS: Final = 3
"""Most objects around an answer, one in the other."""
_MAX_DIGITS: Final = 4000
"""Numbers with more characters become None, because Python refuses to read integers of more than 4300 digits."""
_MIN_INTEGER: Final = -(1 << 63)
_MAX_INTEGER: Final = (1 << 64) - 1
"""orjson reads integers from `_MIN_INTEGER` to `_MAX_INTEGER` as integers, and others as floating-point numbers."""


def parse_object_lenient(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object of an answer; None if `body` holds none. Never raises.

    If the object at the start is no answer, an answer inside it is returned instead: in a list of one, in one field, or
    in a text that is JSON. The other fields of the object around it are added. If the body starts with something else,
    as JSONP and HTML do, all from the first brace to the last one is the object.

    Such an inner answer counts only if it has results, a request id, a balance or back ends. An error alone does not
    count, because it could come from somebody else than the service, and would mean that nothing was charged.
    """
    value = loads_lenient(body)
    if isinstance(value, dict) and any(value.get(field) for field in (*_ANSWER_FIELDS, "error")):
        return value
    found = _inner_answer(value)
    if found is None and not isinstance(value, dict):
        text = _to_text(body)
        start, end = text.find("{"), text.rfind("}") + 1
        if start > 0:
            found = _inner_answer(text[start:end])
    return value if found is None and isinstance(value, dict) else found


def _inner_answer(value: Any, levels: int = _MAX_LEVELS) -> dict[str, Any] | None:
    """Return the only answer in a JSON value that is no answer itself; None without one, or with several."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        value = _loads_whole(value)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if not isinstance(value, dict):
        return None
    if any(value.get(field) is not None for field in _ANSWER_FIELDS):
        return value
    inner = [_inner_answer(one, levels - 1) for one in value.values()] if levels else []
    found = [one for one in inner if one is not None]
    if len(found) == 1:
        return {**value, **found[0]}
    return value if not found and any(value.get(field) is not None for field in _QUERY_FIELDS) else None


def loads_lenient(raw: bytes) -> Any:
    """Return the JSON value at the start of `raw`; None if no JSON value starts there. Never raises."""
    body = raw.removeprefix(_UTF8_MARK)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            value, _ = _DECODER.raw_decode(_to_text(raw))
            return _without_surrogates(value)
        except (ValueError, RecursionError):
            return None


def _loads_whole(text: str) -> Any:
    """Return the JSON value that the whole of `text` is; None if it is none."""
    try:
        return _without_surrogates(_DECODER.decode(text))
    except (ValueError, RecursionError):
        return None


def _to_text(raw: bytes) -> str:
    """Return the text in `raw` without spaces around it: UTF-8, UTF-16 or UTF-32, with or without a byte order mark."""
    return raw.decode(json.detect_encoding(raw), "replace").strip()


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
