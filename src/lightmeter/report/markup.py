"""Small pieces of HTML that only the page has. Every text that comes from data passes through `esc`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from lightmeter import html_fragments
from lightmeter.html_fragments import (
    format_number,
    format_percent,
    is_hex_color,
    is_number,
    replace_control_chars,
    valid_colors,
)
from lightmeter.media.oklab import ENCODED_KNEE

__all__ = [
    "FormattedNumber",
    "Html",
    "bar",
    "credits_",
    "esc",
    "link_html",
    "palette_strip",
    "swatch",
    "table",
]

_ADDRESS: Final = re.compile(r"https?://", re.IGNORECASE)
MAX_LETTERS: Final = 300
"""Of one text: a report is no place for a whole page in a tag's name; the tables have it."""


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


class FormattedNumber(str):
    """A number with its unit: it stands right, as numbers do."""

    __slots__ = ()


def esc(value: Any) -> str:
    """As `lightmeter.html_fragments.esc`, no longer than a report can show."""
    text = str(value)
    return html_fragments.esc(text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}…")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """A table; columns of numbers stand right, None is a dash, `Html` is taken as it is."""
    return html_fragments.table(
        head, rows, _cell, caption=caption, number=lambda value: is_number(value) or _is_figure(value)
    )


def _is_figure(value: Any) -> bool:
    return isinstance(value, FormattedNumber)


def _cell(value: Any, name: str, right: str) -> str:
    """One cell; its column's name is shown beside it where the screen is too small for columns."""
    label = f'{right} data-label="{esc(name)}"' if name else right
    if value is None:
        return f'<td{label}><span class="none">-</span></td>'
    if is_number(value):
        return f"<td{label}>{format_number(value)}</td>"
    return f"<td{label}>{value if isinstance(value, Html) else esc(value)}</td>"


def credits_(count: int | None) -> str:
    """`1 credit`, `1,234 credits`."""
    return "not known" if count is None else f"{count:,} credit{'' if count == 1 else 's'}"


def link_html(url: str, text: str | None = None) -> Html:
    """An address as a link, if it is one that a browser may safely open; else as text."""
    shown = esc(url if text is None else text)
    if not _ADDRESS.match(url):
        return Html(shown)
    return Html(
        f'<a href="{html_fragments.esc(replace_control_chars(url, ""))}" rel="noreferrer noopener nofollow">{shown}</a>'
    )


def swatch(color: str) -> str:
    """A dot of a colour, if it is one."""
    return f'<i class="dot" style="background:{color}"></i>' if is_hex_color(color) else ""


def palette_strip(colors: Sequence[tuple[str, float]], *, named: bool = False) -> str:
    """A palette as a strip, as wide as each colour's share; what is not `#rrggbb` is left out."""
    good = valid_colors(colors)
    whole = sum(part for _, part in good)
    if not good:
        return ""
    said = ", ".join(f"{color} {format_percent(part, whole)}" for color, part in good)
    # A fifth of the width is shared out evenly: else the small ones could not be seen.
    parts = "".join(
        f'<i style="background:{color};flex-grow:{0.8 * (part / whole if whole else 1) + 0.2 / len(good):.4f}" '
        f'title="{color} {format_percent(part, whole)}">{_named(color) if named else ""}</i>'
        for color, part in good
    )
    return f'<div class="strip{" named" if named else ""}" role="img" aria-label="Colours: {said}">{parts}</div>'


def _named(color: str) -> str:
    """A colour's name upon it, in black or white, whichever stands out more (relative luminance as in WCAG 2.2)."""
    channels = [part / 255 for part in bytes.fromhex(color[1:])]
    linear = [part / 12.92 if part <= ENCODED_KNEE else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return f'<b style="color:{"#000" if luminance > _EVEN else "#fff"}">{color}</b>'


_EVEN: Final = 0.179
"""Luminance from which black stands out as much as white: (1.05 x 0.05) ** 0.5 - 0.05."""


def bar(value: float, mood: str = "") -> Html:
    """A value from 0 to 1 as a small bar before its figure."""
    width = min(1.0, max(0.0, value))
    return Html(
        f'<span class="meter {mood}"><i style="width:{width:.1%}"></i></span><span class="of">{value:.2f}</span>'
    )
