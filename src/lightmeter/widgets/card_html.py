"""HTML of the notebook gallery: a card for each item, and the details of one item."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lightmeter.html_fragments import esc, format_duration
from lightmeter.html_report.thumbnails import Thumbnail
from lightmeter.ui.gallery_queries import PAGE_ROWS, Card, Filters, pages
from lightmeter.ui.run_data import DETAIL_COLUMNS, MAX_ENTRIES
from lightmeter.widgets.markup import gauge, message, palette_strip, status_mark, table, thumbnail_html

_GENERATED_ID: Final = re.compile(r"[0-9a-f]{16}(#\d+)?")


def card_html(card: Card, thumbnail: Thumbnail, *, show_blurred: bool) -> str:
    """Return an item's card as HTML: picture (blurred if unsafe, unless `show_blurred`), name, results, status."""
    tags = ", ".join(esc(name) if score is None else f"{esc(name)} {score:.0%}" for name, score in card.tags)
    status = status_mark(card.status) + (f" · {esc(card.reason.replace('_', ' '))}" if card.reason else "")
    explanation = esc(card.error or card.reason or card.status)
    return (
        f"{_picture(card, thumbnail, show_blurred=show_blurred)}"
        f'<div class="lm-name" title="{esc(card.url)}">{esc(card.name)}</div>'
        f'<div class="lm-tags">{tags or "no tags"}</div>{palette_strip(card.colors)}{gauge(card.severity)}'
        f'<div class="lm-foot" title="{explanation}">{status}</div>'
    )


def detail_html(
    card: Card,
    thumbnail: Thumbnail,
    entries: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    interval_s: int,
    show_blurred: bool,
) -> str:
    """Return the details of an item as HTML: its picture, and its rows in the tables of the run.

    Args:
        card: The item.
        thumbnail: The thumbnail of the item.
        entries: Table name → the rows of the item in that table.
        interval_s: Seconds between captured frames of a video; gives the time of each frame.
        show_blurred: Whether to show a likely unsafe picture unblurred.
    """
    rows = [("status", card.status), ("kind", card.kind), ("address", card.url)]
    if not _GENERATED_ID.fullmatch(card.item_id):
        rows.insert(0, ("id", card.item_id))
    if card.duration_s is not None:
        rows.append(("length", format_duration(card.duration_s)))
    if card.measures:
        rows.append(("size", card.measures))
    parts = [
        f"<h3>{esc(card.name)}</h3>",
        _picture(card, thumbnail, show_blurred=show_blurred),
        message(card.error, "error" if card.status in {"failed", "in_doubt"} else "") if card.error else "",
        table("", ("property", "value"), rows),
        *(_entries(name, entries.get(name, ()), interval_s) for name in DETAIL_COLUMNS),
    ]
    if not any(entries.values()):
        parts.append('<p class="lm-note">The tables hold no entries of this item.</p>')
    return "".join(parts)


def position_html(filters: Filters, items: int, total: int) -> str:
    """Return the line above the gallery, as HTML, such as `1 to 24 of 90 items · page 1 of 4`.

    Args:
        filters: The filters and the page number.
        items: Number of items that match the filters.
        total: Number of all items of the run.
    """
    if not total:
        return message("The tables are empty.", hint="Run first; `lightmeter rebuild` writes them again.")
    if not items:
        return message("No item is left by these filters.", hint="Widen them, or clear them.")
    first = filters.page * PAGE_ROWS + 1
    last = min(items, first + PAGE_ROWS - 1)
    selection = "" if items == total else f" left by the filters, of {total:,}"
    if filters.similar is not None:
        selection = f" most like {esc(filters.similar.name)}, the nearest first"
    page = f"page {filters.page + 1} of {pages(items)}"
    return f'<div role="status">{first:,} to {last:,} of {items:,} items{selection} · {page}</div>'


def _picture(card: Card, thumbnail: Thumbnail, *, show_blurred: bool) -> str:
    reason = thumbnail.reason or "loading …"
    if card.blurred and not show_blurred:
        alt, badge = f"{card.name}, blurred", "blurred: NSFW"
        return thumbnail_html(thumbnail.blurred_jpeg, alt, reason=reason, badge=badge, blurred=True)
    length = "" if card.duration_s is None else f" · {format_duration(card.duration_s)}"
    badge = f"video{length}" if card.kind == "video" else ""
    return thumbnail_html(thumbnail.jpeg, card.alt, reason=reason, badge=badge)


def _entries(name: str, rows: Sequence[Mapping[str, Any]], interval_s: int) -> str:
    """Return an item's rows of the table `name` (such as `tags`) as a collapsible HTML block; empty without rows."""
    if not rows:
        return ""
    columns = [column for column in DETAIL_COLUMNS[name] if any(row[column] is not None for row in rows)]
    has_frames = any(row["frame"] is not None for row in rows)
    head = ("frame", *columns) if has_frames else columns
    body = [
        (*((_frame_label(row["frame"], interval_s),) if has_frames else ()), *(row[column] for column in columns))
        for row in rows[:MAX_ENTRIES]
    ]
    more = f'<p class="lm-note">The first {MAX_ENTRIES} entries.</p>' if len(rows) > MAX_ENTRIES else ""
    palettes = _palettes(rows, interval_s) if name == "colors" else ""
    open_attribute = "" if name == "colors" else " open"
    return f"{palettes}<details{open_attribute}><summary>{esc(name)}</summary>{table('', head, body)}{more}</details>"


def _palettes(rows: Sequence[Mapping[str, Any]], interval_s: int) -> str:
    """Return, as HTML, a strip of colors for the whole item and each video frame in `rows` of the table `colors`."""
    by_frame: dict[int | None, list[tuple[str, float]]] = {}
    for row in rows:
        share = row["pixel_fraction"] if row["pixel_fraction"] is not None else row["score"]
        by_frame.setdefault(row["frame"], []).append((str(row["hex"]), share or 0.0))
    return "".join(
        f'<div class="lm-detail-row"><span>{_frame_label(frame, interval_s)}</span>'
        f"{palette_strip(sorted(colors, key=lambda color: -color[1]))}</div>"
        for frame, colors in by_frame.items()
    )


def _frame_label(frame: int | None, interval_s: int) -> str:
    """Return a frame's number and time, such as `3 at 6 s`; `whole` if `frame` is None (the entire image or video)."""
    return "whole" if frame is None else f"{frame} at {frame * interval_s} s".replace(" ", "\N{NO-BREAK SPACE}")
