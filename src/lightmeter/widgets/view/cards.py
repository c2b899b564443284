"""Cards and the page about one item, as HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lightmeter.html_fragments import esc, format_duration
from lightmeter.html_report.thumbnails import Thumbnail
from lightmeter.widgets.view.gallery import PAGE_ROWS, Card, Filters, pages
from lightmeter.widgets.view.markup import gauge, message, palette_strip, status_mark, table, thumbnail_html

__all__ = ["ENTRIES", "MAX_ENTRIES", "card_html", "detail_html", "where_html"]

MAX_ENTRIES: Final = 200
"""Rows of a table shown for one item; the tables hold the others."""

ENTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "tags": ("name", "score", "source"),
    "colors": ("hex", "pixel_fraction", "score", "source"),
    "nsfw": ("label", "score", "likelihood", "severity", "source"),
    "descriptions": ("description", "source"),
    "faces": ("face", "gender", "age_low", "age_high", "source"),
    "texts": ("text", "score", "source"),
    "brands": ("name", "score", "source"),
    "prechecks": ("check", "severity", "message"),
}
"""Tables with entries of an item, and the columns that are shown."""

_MADE_ID: Final = re.compile(r"[0-9a-f]{16}(#\d+)?")


def card_html(card: Card, picture: Thumbnail, *, show_blurred: bool) -> str:
    """One card: picture, name, surest tags, palette, NSFW gauge, status."""
    tags = ", ".join(f"{esc(name)} {_percent(score)}".strip() for name, score in card.tags)
    status = status_mark(card.status) + (f" · {esc(card.reason.replace('_', ' '))}" if card.reason else "")
    why = esc(card.error or card.reason or card.status)
    return (
        f"{_shown(card, picture, show_blurred=show_blurred)}"
        f'<div class="lm-name" title="{esc(card.url)}">{esc(card.name)}</div>'
        f'<div class="lm-tags">{tags or "no tags"}</div>{palette_strip(card.colors)}{gauge(card.severity)}'
        f'<div class="lm-foot" title="{why}">{status}</div>'
    )


def detail_html(
    card: Card,
    picture: Thumbnail,
    entries: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    interval_s: int,
    show_blurred: bool,
) -> str:
    """Everything the tables say of one item; entries of video frames with their time, frame x `interval_s` seconds."""
    rows = [("status", card.status), ("kind", card.kind), ("address", card.url)]
    if not _MADE_ID.fullmatch(card.item_id):
        rows.insert(0, ("id", card.item_id))
    if card.duration_s is not None:
        rows.append(("length", format_duration(card.duration_s)))
    parts = [
        f"<h3>{esc(card.name)}</h3>",
        _shown(card, picture, show_blurred=show_blurred),
        message(card.error, "error" if card.status in {"failed", "in_doubt"} else "") if card.error else "",
        table("", ("what", "value"), rows),
        *(_entries(name, entries.get(name, ()), interval_s) for name in ENTRIES),
    ]
    if not any(entries.values()):
        parts.append('<p class="lm-note">The tables hold no entries of this item.</p>')
    return "".join(parts)


def where_html(filters: Filters, items: int, of: int) -> str:
    """Where in the gallery one is."""
    if not of:
        return message("The tables are empty.", hint="Run first; `lightmeter rebuild` writes them again.")
    if not items:
        return message("No item is left by these filters.", hint="Widen them, or clear them.")
    first = filters.page * PAGE_ROWS + 1
    last = min(items, first + PAGE_ROWS - 1)
    beyond = "" if items == of else f" left by the filters, of {of:,}"
    if filters.similar is not None:
        beyond = f" most like {esc(filters.similar.to)}, the nearest first"
    page = f"page {filters.page + 1} of {pages(items)}"
    return f'<div role="status">{first:,} to {last:,} of {items:,} items{beyond} · {page}</div>'


def _shown(card: Card, picture: Thumbnail, *, show_blurred: bool) -> str:
    hidden = card.blurred and not show_blurred
    length = "" if card.duration_s is None else f" · {format_duration(card.duration_s)}"
    badge = f"video{length}" if card.kind == "video" else ""
    if hidden:
        badge = "blurred: NSFW"
    jpeg = picture.blurred_jpeg if hidden else picture.jpeg
    alt = f"{card.name}, blurred" if hidden else card.alt
    return thumbnail_html(jpeg, alt, reason=picture.reason or "loading …", badge=badge, blurred=hidden)


def _entries(name: str, rows: Sequence[Mapping[str, Any]], interval_s: int) -> str:
    """One table of an item, folded; of colours, which are many, the palettes stand before it."""
    if not rows:
        return ""
    columns = [column for column in ENTRIES[name] if any(row[column] is not None for row in rows)]
    framed = any(row["frame"] is not None for row in rows)
    head = ("frame", *columns) if framed else columns
    body = [
        (*((_moment(row["frame"], interval_s),) if framed else ()), *(row[column] for column in columns))
        for row in rows[:MAX_ENTRIES]
    ]
    more = f'<p class="lm-note">The first {MAX_ENTRIES} entries.</p>' if len(rows) > MAX_ENTRIES else ""
    palettes = _palettes(rows, interval_s) if name == "colors" else ""
    unfolded = "" if name == "colors" else " open"
    return f"{palettes}<details{unfolded}><summary>{esc(name)}</summary>{table('', head, body)}{more}</details>"


def _palettes(rows: Sequence[Mapping[str, Any]], interval_s: int) -> str:
    """A strip for each frame that has colours."""
    by_frame: dict[int | None, list[tuple[str, float]]] = {}
    for row in rows:
        share = row["pixel_fraction"] if row["pixel_fraction"] is not None else row["score"]
        by_frame.setdefault(row["frame"], []).append((str(row["hex"]), share or 0.0))
    return "".join(
        f'<div class="lm-detail-row"><span>{_moment(frame, interval_s)}</span>'
        f"{palette_strip(sorted(colors, key=lambda color: -color[1]))}</div>"
        for frame, colors in by_frame.items()
    )


def _moment(frame: int | None, interval_s: int) -> str:
    """A frame and its time; the blanks do not break."""
    return (
        "whole"
        if frame is None
        else f"{frame}\N{NO-BREAK SPACE}at\N{NO-BREAK SPACE}{frame * interval_s}\N{NO-BREAK SPACE}s"
    )


def _percent(score: float | None) -> str:
    return "" if score is None else f"{score:.0%}"
