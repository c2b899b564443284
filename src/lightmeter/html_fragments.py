"""HTML and number formatting shared by the report and the widgets. Pass every text from data through `esc`."""

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
"""Characters that HTML cannot hold, and those that change the direction of the text after them."""


def replace_control_chars(value: Any, replacement: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Return a value as text with control and direction characters replaced."""
    return _CONTROL.sub(replacement, str(value))


def esc(value: Any) -> str:
    """Return a value as escaped text, safe in HTML and in quoted attributes."""
    return escape(replace_control_chars(value), quote=True)


def is_hex_color(text: str) -> bool:
    """Whether a text is a color in the form `#rrggbb`."""
    return _HEX.fullmatch(text) is not None


def valid_colors(colors: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return the (color, share) pairs whose color is in the form `#rrggbb`, with negative shares set to 0."""
    return [(color, max(0.0, part)) for color, part in colors if is_hex_color(color)]


def is_number(value: Any) -> bool:
    """Whether a value is an int or float, but no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def format_number(value: float) -> str:
    """Format a number with three significant digits: 0.0312, 2.67, 1,234."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == int(value) and abs(value) >= 1:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 (a fraction does not matter then)


def format_percent(part: float, whole: float) -> str:
    """Format a part of a whole in per cent: 0 % only if it is nothing, 100 % only if it is all."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if part != whole:
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.0f} %" if percent == 100 or 1 <= percent <= 99 else f"{percent:.1f} %"  # noqa: PLR2004 (ends of the scale)


def format_duration(value: float) -> str:
    """Format seconds: `30 ms`, `4.2 s`, `42 s`, `3 min`, `2.5 h`."""
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
    """Return a JPEG as a `data:` URI, so that the page needs no server for it."""
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
    """Return an HTML table with columns of numbers aligned to the right.

    Args:
        head: Column names.
        rows: Values, a sequence for each row.
        cell: Makes the HTML of a cell from its value, its column name, and its HTML attributes.
        caption: Caption of the table.
        css: Prefix of its CSS class names.
        number: Whether a value counts as a number.
    """
    rows = list(rows)
    right = f' class="{css}number"'
    attributes = [right if any(number(row[at]) for row in rows) else "" for at in range(len(head))]
    titles = "".join(f'<th scope="col"{attr}>{esc(name)}</th>' for name, attr in zip(head, attributes, strict=True))
    body = "".join(
        f"<tr>{''.join(cell(value, name, attr) for value, name, attr in zip(row, head, attributes, strict=True))}</tr>"
        for row in rows
    )
    table_class = f' class="{css}table"' if css else ""
    caption_html = f"<caption>{esc(caption)}</caption>" if caption else ""
    return f"<table{table_class}>{caption_html}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
