"""HTML fragments of the widgets: tables, messages, palettes, thumbnails. Each text from data passes through `esc`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

from lightmeter.html_fragments import data_uri, esc, format_number, is_hex_color, is_number, valid_colors

STYLE: Final = f"<style>{files('lightmeter.widgets').joinpath('widgets.css').read_text(encoding='utf-8')}</style>"
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
    """Return a highlighted sentence.

    Args:
        text: The sentence.
        mood: `good` or `error`, which sets the color, or empty.
        hint: What to do next.
    """
    after = f" {esc(hint)}" if hint else ""
    kind = f" lm-{mood}" if mood in {"good", "error"} else ""
    return f'<div class="lm-message{kind}" role="status">{esc(text)}{after}</div>'


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table: columns with numbers are right-aligned, None is a dash, a color gets a dot.

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
    """Return a status as a colored dot and its name."""
    color = _STATUS_COLORS.get(status, "transparent")
    return f'<i class="lm-mark" style="background:{color}"></i>{esc(status.replace("_", " "))}'


def palette_strip(colors: Sequence[tuple[str, float]]) -> str:
    """Return colors as a strip, each as wide as its share; anything but `#rrggbb` is left out."""
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
    """Return an NSFW severity (0 to 1) as a scale with its figure."""
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
        alt: Description of the picture.
        reason: Why there is no picture.
        badge: Short text in a corner.
        blurred: Whether the picture is the blurred one.
    """
    content = (
        f'<div class="lm-missing">{esc(reason)}</div>'
        if jpeg is None
        else f'<img src="{data_uri(jpeg)}" alt="{esc(alt)}">'
    )
    mark = f'<span class="lm-badge">{esc(badge)}</span>' if badge else ""
    return f'<div class="lm-shot{" lm-blurred" if blurred else ""}">{content}{mark}</div>'
