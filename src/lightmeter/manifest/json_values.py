"""Parses JSON without a loss of digits, and finds values that are nested too deeply to be stored. No I/O."""

from __future__ import annotations

import json
import re
from typing import Final

import orjson

from lightmeter.manifest.item import JSON

MAX_NESTING: Final = 250
"""Most levels of lists and objects in one cell of a manifest.

The journal and plan files are written by orjson, which writes 254 levels, and they nest a cell in up to three more.
"""

_LONG_NUMBER: Final = re.compile("[0-9]{19}")
_LONG_NUMBER_BYTES: Final = re.compile(b"[0-9]{19}")


def parse_json(text: str | bytes) -> JSON:
    """Return the value of a JSON text; an integer that does not fit 64 bits becomes a text with its digits.

    Raises:
        json.JSONDecodeError: the text is not JSON, or is nested too deeply to be parsed.
    """
    value: JSON = orjson.loads(text)
    found = _LONG_NUMBER.search(text) if isinstance(text, str) else _LONG_NUMBER_BYTES.search(text)
    if found is None:
        return value
    try:  # orjson makes such integers floats, and several ids could become one
        value = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deeply", "", 0) from None
    return value


def _integer(digits: str) -> int | str:
    if len(digits) > len(str(-(2**63))):
        return digits
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else digits


def is_too_deep(value: JSON) -> bool:
    """Return whether a value is nested in more than `MAX_NESTING` levels of lists and objects."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        nested = [one for one in level if isinstance(one, (list, tuple, dict))]
        if not nested:
            return False
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
    return True
