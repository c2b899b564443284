"""Small pieces of HTML that the report and the widgets share. Every text that comes from data passes through `esc`."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, Final

__all__ = [
    "data_uri",
    "esc",
    "format_duration",
    "format_number",
    "format_percent",
    "is_hex_color",
    "is_number",
    "replace_control_chars",
    "table",
    "valid_colors",
]

_HEX: Final = re.compile(r"#[0-9a-fA-F]{6}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
"""What HTML cannot hold, and what turns the direction of all text after it."""


def replace_control_chars(value: Any, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """A value as text without what HTML cannot hold."""
    return _CONTROL.sub(instead, str(value))


def esc(value: Any) -> str:
    """A value as text that is nothing but text, also inside a quoted attribute."""
    return escape(replace_control_chars(value), quote=True)


def is_hex_color(text: str) -> bool:
    """Whether a text is a colour as `#rrggbb`, and nothing else."""
    return _HEX.fullmatch(text) is not None


def valid_colors(colors: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Of colours and their shares those that are written as `#rrggbb`; no share is below 0."""
    return [(color, max(0.0, part)) for color, part in colors if is_hex_color(color)]


def is_number(value: Any) -> bool:
    """Whether it is a number, and neither true nor false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def format_number(value: float) -> str:
    """A number in as many digits as one reads: 0.0312, 2.67, 1,234."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == int(value) and abs(value) >= 1:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 (then no fraction counts)


def format_percent(part: float, whole: float) -> str:
    """A part in per cent; what is not nothing is never 0 %, what is not all never 100 %."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if part != whole:
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.0f} %" if percent == 100 or 1 <= percent <= 99 else f"{percent:.1f} %"  # noqa: PLR2004 (ends of the scale)


def format_duration(value: float) -> str:
    """A length of time as a person says it: `30 ms`, `4.2 s`, `42 s`, `3 min`, `2.5 h`."""
    for limit, text in (
        (1, f"{1000 * value:.0f} ms"),
        (10, f"{value:.1f} s"),
        (90, f"{value:.0f} s"),
        (5400, f"{value / 60:.0f} min"),
    ):
        if value < limit:
            return text
    return f"{value / 3600:.1f} h"


def data_uri(jpeg: bytes) -> str:
    """A JPEG inside the page, so that a picture needs no server."""
    return f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    cell: Callable[[Any, str, str], str],
    *,
    caption: str = "",
    css: str = "",
    number: Callable[[Any], bool] = is_number,
) -> str:
    """A table; columns of numbers stand right.

    Args:
        head: Names of the columns.
        rows: Their values.
        cell: Makes a cell of a value, its column's name, and the attributes that it must have.
        caption: Above it.
        css: Begins the names of its classes.
        number: What stands right.
    """
    rows = list(rows)
    mark = f' class="{css}number"'
    marks = [mark if any(number(row[at]) for row in rows) else "" for at in range(len(head))]
    titles = "".join(f'<th scope="col"{of}>{esc(name)}</th>' for name, of in zip(head, marks, strict=True))
    body = "".join(
        f"<tr>{''.join(cell(value, name, of) for value, name, of in zip(row, head, marks, strict=True))}</tr>"
        for row in rows
    )
    own = f' class="{css}table"' if css else ""
    named = f"<caption>{esc(caption)}</caption>" if caption else ""
    return f"<table{own}>{named}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
