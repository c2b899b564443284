"""Escapes texts for HTML and formats numbers, for the report, the widgets and plans."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from lightmeter.terminal import BIDI_CONTROLS, CONTROLS

_HEX: Final = re.compile(r"#[0-9a-fA-F]{6}")
_CONTROL: Final = re.compile(rf"[{CONTROLS}{BIDI_CONTROLS}\ud800-\udfff]")
"""Matches a character that HTML does not allow, or that changes the writing direction of the text after it."""


def replace_control_chars(value: Any, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Return a value as text in which `instead` replaces control characters.

    Characters that change the writing direction are replaced too.
    """
    return _CONTROL.sub(instead, str(value))


def esc(value: Any) -> str:
    """Return a value as text that is escaped for use in HTML elements and in quoted attributes."""
    return escape(replace_control_chars(value), quote=True)


def is_hex_color(text: str) -> bool:
    """Return whether a text is a color written as `#rrggbb`."""
    return _HEX.fullmatch(text) is not None


def valid_colors(colors: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return only the pairs (color, share of the picture) whose color is `#rrggbb`. A negative share becomes 0."""
    return [(color, max(0.0, part)) for color, part in colors if is_hex_color(color)]


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a float. A boolean does not count as a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def format_number(value: float) -> str:
    """Return a number as text, with thousands separators: 0.0312, 2.67, 1,234.

    Whole numbers are shown in full. Other numbers have three significant digits if they are below 1000, else they are
    rounded to a whole number.
    """
    if isinstance(value, int):
        return f"{value:,}"
    if value == int(value) and abs(value) >= 1:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 (no fraction is shown from here)


def counted(number: int, one: str, many: str) -> str:
    """Return `number` and a phrase: `one` (such as "row is") if the number is 1, else `many` (such as "rows are")."""
    return f"{number} {one if number == 1 else many}"


def format_percent(part: float, whole: float) -> str:
    """Return `part` of `whole` in percent, such as `42 %`; `0 %` if `whole` is 0.

    A percentage below 1 % or above 99 % has one decimal, and is at least `0.1 %` and at most `99.9 %`. Only an exact 0
    is `0 %`, and only the exact whole is `100 %`.
    """
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if part != whole:
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.0f} %" if percent == 100 or 1 <= percent <= 99 else f"{percent:.1f} %"  # noqa: PLR2004 (percent)


def format_duration(value: float) -> str:
    """Return a duration of `value` seconds with a fitting unit: `30 ms`, `4.2 s`, `42 s`, `3 min`, `2.5 h`."""
    for limit, text in (
        (1, f"{1000 * value:.0f} ms"),
        (10, f"{value:.1f} s"),
        (90, f"{value:.0f} s"),
        (5400, f"{value / 60:.0f} min"),
    ):
        if value < limit:
            return text
    return f"{value / 3600:.1f} h"


def format_bytes(count: int) -> str:
    """Return `count` bytes as text with a fitting unit: `812 bytes`, `12.3 kB`, `4.1 MB`."""
    if count < 1000:  # noqa: PLR2004 (a kilobyte)
        return f"{count} bytes"
    value, unit = (count / 1e3, "kB") if count < 1e6 else (count / 1e6, "MB")  # noqa: PLR2004 (a megabyte)
    return f"{value:,.1f} {unit}"


def data_uri(jpeg: bytes) -> str:
    """Return a JPEG as a data URI, so that a page can show it without a server."""
    return f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"


def labeled_lines_as_html(title: str, lines: Iterable[str]) -> str:
    """Return an HTML table with a title and a row for each line of `lines`.

    A line is a label, two or more spaces, and a value.
    """
    cells = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines)
    left = 'style="text-align:left"'
    rows = "".join(
        f'<tr><th scope="row" {left}>{esc(label)}</th><td {left}>{esc(value)}</td></tr>'
        for label, value in ((cell[0], cell[1] if len(cell) > 1 else "") for cell in cells)
    )
    return f"<div><b>{esc(title)}</b><table>{rows}</table></div>"
