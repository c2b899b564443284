"""HTML fragments of the widgets: tables, messages, palettes, thumbnails. Texts from data are escaped with `esc`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

from lightmeter.html_fragments import data_uri, esc, format_number, is_hex_color, is_number, valid_colors

STYLE: Final = f"<style>{files('lightmeter.ui').joinpath('static/shared.css').read_text(encoding='utf-8')}</style>"
"""The style sheet as HTML; each widget holds it once."""

_STATUS_COLORS: Final = {
    "ok": "#2f9a5d",
    "failed": "#d33f3f",
    "skipped": "#8a8a8a",
    "duplicate": "#3f7fd9",
    "in_doubt": "#c9781e",
    "over_budget": "#9458c4",
    "pending": "transparent",
}


def message(text: str, mood: str = "", hint: str = "") -> str:
    """Return a highlighted sentence as HTML.

    Args:
        text: The sentence.
        mood: Sets the color: `good` (success), `error`, or empty (neutral).
        hint: Advice after the sentence on what to do next; empty for none.
    """
    after = f" {esc(hint)}" if hint else ""
    kind = f" lm-{mood}" if mood in {"good", "error"} else ""
    return f'<div class="lm-message{kind}" role="status">{esc(text)}{after}</div>'


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table: numbers are right-aligned, None is a dash, `#rrggbb` gets a dot of that color.

    Args:
        caption: Title above the table; empty for none.
        columns: Names of the columns.
        rows: Values of each row.
    """
    rows = list(rows)
    css = [' class="lm-number"' if any(is_number(row[at]) for row in rows) else "" for at in range(len(columns))]
    head = "".join(f'<th scope="col"{name_css}>{esc(name)}</th>' for name, name_css in zip(columns, css, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{cell_css}>{_cell(value)}</td>' for value, cell_css in zip(row, css, strict=True))}</tr>"
        for row in rows
    )
    title = f"<caption>{esc(caption)}</caption>" if caption else ""
    return f'<table class="lm-table">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if is_number(value):
        return format_number(value)
    if isinstance(value, str) and is_hex_color(value):
        return f'<i class="lm-mark" style="background:{value}"></i>{esc(value)}'
    return esc(value)


def status_mark(status: str) -> str:
    """Return an item's status, such as `in_doubt`, as HTML: a colored dot and the words."""
    color = _STATUS_COLORS.get(status, "transparent")
    return f'<i class="lm-mark" style="background:{color}"></i>{esc(status.replace("_", " "))}'


def palette_strip(colors: Sequence[tuple[str, float]]) -> str:
    """Return pairs of `#rrggbb` and share as an HTML strip, each color as wide as its share; skip invalid colors."""
    valid = valid_colors(colors)
    if not valid:
        return '<div class="lm-strip" role="img" aria-label="no colours"></div>'
    label = ", ".join(f"{color} {share:.0%}" for color, share in valid)
    parts = "".join(
        f'<i style="background:{color};flex:{share * 100:.2f} 1 0" title="{color} {share:.0%}"></i>'
        for color, share in valid
    )
    return f'<div class="lm-strip" role="img" aria-label="colours: {label}">{parts}</div>'


def gauge(severity: float | None) -> str:
    """Return an NSFW severity (0 to 1) as HTML: the number and a bar; a text if it is None."""
    if severity is None:
        return '<div class="lm-gauge"><span>NSFW not rated</span></div>'
    share = min(1.0, max(0.0, severity))
    color = "#2f9a5d" if share < 1 / 3 else "#c9781e" if share < 2 / 3 else "#d33f3f"
    return (
        f'<div class="lm-gauge"><span>NSFW {share:.2f}</span><div class="lm-scale" role="meter" aria-valuemin="0" '
        f'aria-valuemax="1" aria-valuenow="{share:.2f}" aria-label="NSFW severity">'
        f'<i style="left:0;width:{share:.1%};background:{color}"></i></div></div>'
    )


def thumbnail_html(jpeg: bytes | None, alt: str, *, reason: str = "", badge: str = "", blurred: bool = False) -> str:
    """Return a thumbnail with its border, as HTML.

    Args:
        jpeg: The picture; None shows `reason`.
        alt: Description of the picture, for screen readers.
        reason: Why there is no picture.
        badge: Short text in a corner; empty for none.
        blurred: Whether `jpeg` is the blurred version of a likely unsafe picture.
    """
    content = (
        f'<div class="lm-missing">{esc(reason)}</div>'
        if jpeg is None
        else f'<img src="{data_uri(jpeg)}" alt="{esc(alt)}">'
    )
    mark = f'<span class="lm-badge">{esc(badge)}</span>' if badge else ""
    return f'<div class="lm-shot{" lm-blurred" if blurred else ""}">{content}{mark}</div>'
