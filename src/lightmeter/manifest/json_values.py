"""Parses JSON without a loss of digits, and converts values to JSON that can be stored. No I/O."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any, Final

import orjson

from lightmeter.manifest.item import JSON

MAX_NESTING: Final = 250
"""Most levels of lists and objects in one cell of a manifest.

The journal and plan files are written by orjson, which writes 254 levels, and they nest a cell in up to three more.
"""

NOT_FINITE: Final = "NaN or infinite, read as null"
TOO_DEEP: Final = f"nested deeper than {MAX_NESTING} levels, read as null"
NOT_TEXT: Final = "not valid Unicode, read with `?`"

_PARSED_LEVELS: Final = MAX_NESTING + 50  # enough to see that a cell is nested too deeply
_LONG_NUMBER: Final = re.compile("[0-9]{19}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def parse_json(text: str) -> tuple[JSON, bool]:
    """Return the value of a JSON text, and whether it is storable as it is; else `plain_value` must convert it.

    An integer that does not fit 64 bits becomes a text with its digits. NaN and infinite numbers are accepted.

    Raises:
        json.JSONDecodeError: the text is not JSON.
    """
    try:
        value: JSON = orjson.loads(text)
    except json.JSONDecodeError:
        strict = False
    else:
        strict = True
        if _LONG_NUMBER.search(text) is None:
            return value, True
    # orjson refuses some of what other writers call JSON, and makes long integers floats, so that ids become equal.
    loads = json.JSONDecoder(strict=False, parse_int=_integer, parse_constant=lambda _: math.inf).decode
    return loads(_cut_deep_values(text)), strict


def _integer(digits: str) -> int | str:
    if len(digits) > len(str(-(2**63))):
        return digits
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else digits


def _cut_deep_values(text: str) -> str:
    """Return a JSON text with null in place of lists and objects that are nested in `_PARSED_LEVELS` levels."""
    kept, start, level = [], 0, 0
    for found in _JSON_TOKEN.finditer(text):
        if found[0] in {"[", "{"}:
            level += 1
            if level == _PARSED_LEVELS + 1:
                kept.append(text[start : found.start()])
        elif found[0] in {"]", "}"}:
            if level == _PARSED_LEVELS + 1:
                kept.append("null")
                start = found.end()
            level -= 1
    return "".join(kept) + ("" if level > _PARSED_LEVELS else text[start:])


def plain_value(value: Any, reasons: list[str]) -> JSON:
    """Convert a Python value to JSON: numpy values to Python values, bytes to text, any unknown type to its text.

    For a value that JSON lacks, its reason, such as `NOT_FINITE`, is added to `reasons`; NaN, with which pandas marks
    missing values, is null without a reason.
    """
    plain: JSON
    match value:  # the order matters: True is an int
        case None | bool():
            plain = value
        case int():
            plain = value if -(2**63) <= value < 2**64 else str(value)
        case float():
            plain = value if math.isfinite(value) else None
            reasons += [NOT_FINITE] * math.isinf(value)
        case date():  # pandas' NaT is a date that differs from itself
            plain = value.isoformat() if value == value else None  # noqa: PLR0124
        case Mapping():
            plain = {plain_text(name, reasons): plain_value(inner, reasons) for name, inner in value.items()}
        case list() | tuple():
            plain = [plain_value(inner, reasons) for inner in value]
        case bytes():
            plain = text_of_bytes(value)
        case _ if not isinstance(value, str) and hasattr(value, "tolist"):  # numpy, without importing it
            plain = plain_value(value.tolist(), reasons)
        case _:
            is_missing = type(value).__name__ == "NAType"  # pandas.NA, without importing pandas
            plain = None if is_missing else plain_text(value, reasons)
    return plain


def plain_text(value: Any, reasons: list[str]) -> str:
    """Return `str(value)` with question marks for what UTF-8 cannot encode; then `NOT_TEXT` is added to `reasons`."""
    text = str(value)
    if is_valid_text(text):
        return text
    reasons.append(NOT_TEXT)
    return text.encode("utf-8", "replace").decode()


def is_valid_text(text: str) -> bool:
    """Whether a text has no lone surrogates, which UTF-8 cannot encode."""
    return text.isascii() or _SURROGATE.search(text) is None


def text_of_bytes(value: bytes) -> str:
    """Return bytes as the UTF-8 text that they are; in base64 if they are no text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def is_too_deep(value: JSON) -> bool:
    """Return whether a value is nested in more than `MAX_NESTING` levels of lists and objects."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        nested = [one for one in level if isinstance(one, (list, tuple, dict))]
        if not nested:
            return False
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
    return True
