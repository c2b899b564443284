"""Small pieces of HTML for the page. Every text that comes from data passes through `esc`."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from lightmeter.media.oklab import ENCODED_KNEE

__all__ = [
    "Figure",
    "Html",
    "bar",
    "credits_",
    "data_uri",
    "esc",
    "linked",
    "seconds",
    "share",
    "strip",
    "swatch",
    "table",
]

_HEX: Final = re.compile(r"#[0-9a-fA-F]{6}")
_ADDRESS: Final = re.compile(r"https?://", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
"""What HTML cannot hold, and what turns the direction of all text after it."""

MOST_LETTERS: Final = 300
"""Of one text: a report is no place for a whole page in a tag's name; the tables have it."""


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


class Figure(str):
    """A number with its unit: it stands right, as numbers do."""

    __slots__ = ()


def esc(value: Any) -> str:
    """A value as text that is nothing but text, also inside a quoted attribute."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value))
    return escape(text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…", quote=True)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """A table; columns of numbers stand right, None is a dash, `Html` is taken as it is."""
    rows = list(rows)
    numeric = [any(_is_number(row[at]) for row in rows) for at in range(len(head))]
    titles = "".join(
        f'<th scope="col"{_NUMBER if number else ""}>{esc(name)}</th>'
        for name, number in zip(head, numeric, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, head, numeric)}</tr>" for row in rows)
    named = f"<caption>{esc(caption)}</caption>" if caption else ""
    return f"<table>{named}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


_NUMBER: Final = ' class="number"'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Figure) and not isinstance(value, bool)


def _cells(row: Sequence[Any], head: Sequence[str], numeric: Sequence[bool]) -> str:
    cells = zip(row, head, numeric, strict=True)
    return "".join(_cell(value, name, _NUMBER if number else "") for value, name, number in cells)


def _cell(value: Any, name: str, right: str) -> str:
    """One cell; its column's name is shown beside it where the screen is too small for columns."""
    label = f'{right} data-label="{esc(name)}"' if name else right
    if value is None:
        return f'<td{label}><span class="none">-</span></td>'
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"<td{label}>{f'{value:,}' if isinstance(value, int) else figure_of(value)}</td>"
    return f"<td{label}>{value if isinstance(value, Html) else esc(value)}</td>"


def figure_of(value: float) -> str:
    """A number in as many digits as one reads: 0.0312, 2.67, 1,234."""
    if value == int(value) and abs(value) >= 1:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 (then no fraction counts)


def share(part: float, whole: float) -> str:
    """A part in per cent; what is not nothing is never 0 %, what is not all never 100 %."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if part != whole:
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.0f} %" if percent == 100 or 1 <= percent <= 99 else f"{percent:.1f} %"  # noqa: PLR2004 (ends of the scale)


def credits_(count: int | None) -> str:
    """`1 credit`, `1,234 credits`."""
    return "not known" if count is None else f"{count:,} credit{'' if count == 1 else 's'}"


def seconds(value: float) -> str:
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


def linked(url: str, text: str | None = None) -> Html:
    """An address as a link, if it is one that a browser may safely open; else as text."""
    shown = esc(url if text is None else text)
    if not _ADDRESS.match(url):
        return Html(shown)
    return Html(f'<a href="{escape(_CONTROL.sub("", url), quote=True)}" rel="noreferrer noopener nofollow">{shown}</a>')


def swatch(color: str) -> str:
    """A dot of a colour, if it is one."""
    return f'<i class="dot" style="background:{color}"></i>' if _HEX.fullmatch(color) else ""


def strip(colors: Sequence[tuple[str, float]], *, named: bool = False) -> str:
    """A palette as a strip, as wide as each colour's share; what is not `#rrggbb` is left out."""
    good = [(color, max(0.0, part)) for color, part in colors if _HEX.fullmatch(color)]
    whole = sum(part for _, part in good)
    if not good:
        return ""
    said = ", ".join(f"{color} {share(part, whole)}" for color, part in good)
    # A fifth of the width is shared out evenly: else the small ones could not be seen.
    parts = "".join(
        f'<i style="background:{color};flex-grow:{0.8 * (part / whole if whole else 1) + 0.2 / len(good):.4f}" '
        f'title="{color} {share(part, whole)}">{_named(color) if named else ""}</i>'
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


def data_uri(jpeg: bytes) -> str:
    """A JPEG inside the page, so that a picture needs no server."""
    return f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"
