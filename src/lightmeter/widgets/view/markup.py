"""Small pieces of HTML that only widgets have. Every text that comes from data passes through `esc`.

Colours of text and lines are taken from the page, so that light and dark themes both work; no meaning is carried by
colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from lightmeter import html_fragments
from lightmeter.html_fragments import data_uri, esc, format_number, is_hex_color, is_number, valid_colors

__all__ = ["STYLE", "gauge", "message", "palette_strip", "status_mark", "table", "thumbnail_html"]

STYLE: Final = """<style>
.lightmeter { --lm-line: color-mix(in srgb, currentColor 22%, transparent);
  --lm-soft: color-mix(in srgb, currentColor 8%, transparent);
  color: var(--jp-ui-font-color1, inherit); font-family: var(--jp-ui-font-family, system-ui, sans-serif); }
.lightmeter .widget-html-content { line-height: 1.4; font-size: 13px; }
.lightmeter h3 { font-size: 15px; font-weight: 600; margin: 0 0 4px; }
.lightmeter h4 { font-size: 13px; font-weight: 600; margin: 10px 0 4px; }
.lightmeter p { margin: 0 0 6px; }
.lightmeter ul { margin: 0 0 6px; padding-left: 18px; }
.lightmeter code { font-size: 12px; background: var(--lm-soft); padding: 0 4px; border-radius: 3px; }
.lightmeter .lm-big { font-size: 24px; font-weight: 600; line-height: 1.25; }
.lightmeter .lm-note { opacity: .8; }
.lightmeter .lm-message { border-left: 4px solid #c9781e; background: var(--lm-soft); padding: 6px 10px;
  border-radius: 0 4px 4px 0; margin: 0 0 6px; overflow-wrap: anywhere; }
.lightmeter .lm-message.lm-error { border-color: #d33f3f; }
.lightmeter .lm-message.lm-good { border-color: #2f9a5d; }
.lightmeter table.lm-table { border-collapse: collapse; margin: 0 0 8px; font-size: 12px; width: 100%; }
.lightmeter .lm-table caption { text-align: left; font-weight: 600; padding: 6px 0 2px; }
.lightmeter .lm-table th, .lightmeter .lm-table td { text-align: left; vertical-align: top; padding: 2px 12px 2px 0;
  border-bottom: 1px solid var(--lm-line); overflow-wrap: break-word; background: none; }
.lightmeter .lm-table td:last-child { overflow-wrap: anywhere; padding-right: 0; }
.lightmeter .lm-table .lm-number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.lightmeter .lm-scale { position: relative; height: 10px; border-radius: 5px; background: var(--lm-soft);
  border: 1px solid var(--lm-line); overflow: hidden; }
.lightmeter .lm-scale > i { position: absolute; top: 0; bottom: 0; display: block; }
.lightmeter .lm-gauge { display: flex; align-items: center; gap: 8px; font-size: 12px; white-space: nowrap; }
.lightmeter .lm-gauge .lm-scale { flex: 1; }
.lightmeter .lm-mark { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 6px;
  vertical-align: baseline; border: 1px solid var(--lm-line); }
.lightmeter .lm-strip { display: flex; height: 12px; border-radius: 4px; overflow: hidden; margin: 6px 0;
  border: 1px solid var(--lm-line); }
.lightmeter .lm-strip > i { min-width: 4px; }
.lightmeter .lm-shot { height: 140px; border-radius: 6px; background: var(--lm-soft); display: flex;
  align-items: center; justify-content: center; overflow: hidden; position: relative; }
.lightmeter .lm-shot img { width: 100%; height: 100%; object-fit: contain; margin: 0; max-width: none; }
.lightmeter .lm-shot.lm-blurred img { object-fit: cover; }
.lightmeter .lm-shot .lm-badge { position: absolute; left: 6px; bottom: 6px; font-size: 11px; line-height: 1;
  padding: 4px 7px; border-radius: 4px; background: rgba(0, 0, 0, .72); color: #fff; }
.lightmeter .lm-missing { padding: 10px; font-size: 12px; text-align: center; overflow-wrap: anywhere; }
.lightmeter .lm-name { font-weight: 600; white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
  margin-top: 6px; }
.lightmeter .lm-tags { font-size: 12px; min-height: 34px; display: -webkit-box; -webkit-line-clamp: 2;
  -webkit-box-orient: vertical; overflow: hidden; }
.lightmeter .lm-foot { font-size: 12px; margin-top: 6px; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; }
.lightmeter .lm-card { border: 1px solid var(--lm-line); border-radius: 8px; padding: 8px; }
.lightmeter .lm-card.lm-chosen { outline: 2px solid #3f7fd9; outline-offset: -1px; }
.lightmeter .lm-detail { border: 1px solid var(--lm-line); border-radius: 8px; padding: 10px 12px; }
.lightmeter .lm-detail-row { display: grid; grid-template-columns: 70px 1fr; align-items: center; font-size: 12px; }
.lightmeter summary { cursor: pointer; font-weight: 600; padding: 4px 0; }
</style>"""

_STATUS_COLOURS: Final = {
    "ok": "#2f9a5d",
    "failed": "#d33f3f",
    "skipped": "#8a8a8a",
    "duplicate": "#3f7fd9",
    "in_doubt": "#c9781e",
    "over_budget": "#9458c4",
    "pending": "transparent",
}


def message(text: str, mood: str = "", hint: str = "") -> str:
    """A sentence that stands out; `mood` is empty, `good` or `error`."""
    after = f" {esc(hint)}" if hint else ""
    kind = f" lm-{mood}" if mood in {"good", "error"} else ""
    return f'<div class="lm-message{kind}" role="status">{esc(text)}{after}</div>'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; columns of numbers stand right, None is a dash, a colour has a dot of it."""
    return html_fragments.table(head, rows, _cell, caption=caption, css="lm-")


def _cell(value: Any, _: str, right: str) -> str:
    if value is None:
        return f"<td{right}>-</td>"
    if is_number(value):
        return f"<td{right}>{format_number(value)}</td>"
    if isinstance(value, str) and is_hex_color(value):
        return f'<td{right}><i class="lm-mark" style="background:{value}"></i>{esc(value)}</td>'
    return f"<td{right}>{esc(value)}</td>"


def status_mark(status: str) -> str:
    """A dot and the word; the dot only helps the eye."""
    colour = _STATUS_COLOURS.get(status, "transparent")
    return f'<i class="lm-mark" style="background:{colour}"></i>{esc(status.replace("_", " "))}'


def palette_strip(colors: Sequence[tuple[str, float]]) -> str:
    """A palette as a strip, as wide as each colour's share; what is not `#rrggbb` is left out."""
    good = valid_colors(colors)
    if not good:
        return '<div class="lm-strip" role="img" aria-label="no colours"></div>'
    said = ", ".join(f"{colour} {share:.0%}" for colour, share in good)
    parts = "".join(
        f'<i style="background:{colour};flex:{share * 100:.2f} 1 0" title="{colour} {share:.0%}"></i>'
        for colour, share in good
    )
    return f'<div class="lm-strip" role="img" aria-label="colours: {said}">{parts}</div>'


def gauge(severity: float | None) -> str:
    """NSFW severity, 0 to 1, as a scale with its figure."""
    if severity is None:
        return '<div class="lm-gauge"><span>NSFW not rated</span></div>'
    share = min(1.0, max(0.0, severity))
    colour = "#2f9a5d" if share < 1 / 3 else "#c9781e" if share < 2 / 3 else "#d33f3f"
    return (
        f'<div class="lm-gauge"><span>NSFW {share:.2f}</span><div class="lm-scale" role="meter" aria-valuemin="0" '
        f'aria-valuemax="1" aria-valuenow="{share:.2f}" aria-label="NSFW severity">'
        f'<i style="left:0;width:{share:.1%};background:{colour}"></i></div></div>'
    )


def thumbnail_html(jpeg: bytes | None, alt: str, *, reason: str = "", badge: str = "", blurred: bool = False) -> str:
    """A picture in its frame, or why there is none; `badge` stands in its corner."""
    inside = (
        f'<div class="lm-missing">{esc(reason)}</div>'
        if jpeg is None
        else f'<img src="{data_uri(jpeg)}" alt="{esc(alt)}">'
    )
    mark = f'<span class="lm-badge">{esc(badge)}</span>' if badge else ""
    return f'<div class="lm-shot{" lm-blurred" if blurred else ""}">{inside}{mark}</div>'
