"""Queries on the manifest's rows: their status, the reasons for it, and their files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import IS_ROW, IS_SENT

STATUSES: Final = ("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending")

REACH_FACTS: Final = "findings {0} ON {0}.seq = {1}.seq AND {0}.name = 'reach' AND {0}.facts <> '{{}}'"
"""SQL: joins row `{1}` of `items` with the finding `{0}` that states what the server says about its URL: size and ETag.

A row has at most one. A second finding `reach`, without facts, says that the transfer broke off.
"""

_PENDING_MARKS: Final = f"""
SELECT items.seq, items.identity, items.path, items.content_sha256, f.facts
FROM items LEFT JOIN {REACH_FACTS.format("f", "items")}
WHERE items.status = 'pending' AND {IS_SENT} ORDER BY items.seq
"""  # noqa: S608 (constant expressions)


class ItemFile(NamedTuple):
    """Where the image or video of an item is.

    Attributes:
        url: URL or path as in the manifest.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the content, in hexadecimal; None if it was not computed.
    """

    item_id: str
    url: str
    path: str | None
    content_sha256: str | None


class AssetMarks(NamedTuple):
    """Properties of a row's image or video by which a cache of answers can find its answer.

    Attributes:
        identity: URL in canonical form, or path of a local file; None if unknown.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the content, in hexadecimal; None if it was not computed.
        reach_facts: JSON from the pre-check `reach`: size and entity tag at the server; None if there was no response.
    """

    identity: str | None
    path: str | None
    content_sha256: str | None
    reach_facts: str | None


def count_by_status(db: sqlite.Connection) -> dict[str, int]:
    """Return the number of rows of the manifest in each status, including statuses without rows."""
    return _count_by_status(db, IS_ROW)


def count_sendable_rows_by_status(db: sqlite.Connection) -> dict[str, int]:
    """Count all rows by status, also skipped rows and duplicates; return status → number, 0 for a status without rows.

    A video whose frames are sent in its place, as images, does not count; each of these frames counts as one row.
    """
    return _count_by_status(db, IS_SENT)


def _count_by_status(db: sqlite.Connection, condition: str) -> dict[str, int]:
    counted = dict(db.execute(f"SELECT status, count(*) FROM items WHERE {condition} GROUP BY status"))  # noqa: S608
    return {status: counted.get(status, 0) for status in STATUSES}


def has_failed_with(db: sqlite.Connection, reason: str) -> bool:
    """Return whether any manifest row failed with `reason`, a code such as `no_asset`."""
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM items WHERE status = 'failed' AND reason = ?)", (reason,)).get)


def count_by_reason(db: sqlite.Connection) -> list[tuple[str, str, int, str]]:
    """Count the manifest rows that have a reason (a code), by status and reason; most frequent first.

    Return tuples (status, reason, number of rows, text with the URL and the error of one of these rows).
    """
    query = (
        "SELECT status, reason, count(*) AS rows, max(url || coalesce(': ' || error, '')) FROM items "  # noqa: S608
        f"WHERE reason IS NOT NULL AND {IS_ROW} GROUP BY status, reason ORDER BY rows DESC, status, reason"
    )
    return [(status, reason, rows, example) for status, reason, rows, example in db.execute(query)]


def count_findings(db: sqlite.Connection) -> list[tuple[str, str, int, str, str]]:
    """Return what pre-checks found, as (check, severity, number of rows, URL of the first row, message about it).

    The severity `error` comes first, then `warning`, then `info`. Within a severity, the most frequent finding comes
    first.
    """
    query = (
        "SELECT f.name, f.severity, count(DISTINCT f.seq) AS rows, i.url, f.message, min(f.seq) "
        "FROM findings f JOIN items i USING (seq) GROUP BY f.name, f.severity "
        "ORDER BY f.severity = 'info', f.severity = 'warning', rows DESC, f.name"
    )
    return [(name, severity, rows, url, message) for name, severity, rows, url, message, _ in db.execute(query)]


def count_planned_rows(db: sqlite.Connection) -> int:
    """Return how many rows of the manifest are planned so far (`--stream`). Only the last row is read for this."""
    last = db.execute(f"SELECT max(seq) FROM items WHERE {IS_ROW}").get  # noqa: S608 (a constant expression)
    return 0 if last is None else int(last) + 1


def count_rows(db: sqlite.Connection) -> int:
    """Return the number of rows of the manifest."""
    return int(db.execute(f"SELECT count(*) FROM items WHERE {IS_ROW}").get)  # noqa: S608


def item_paths(db: sqlite.Connection, item_ids: Sequence[str]) -> dict[str, str | None]:
    """Return item id → local path (None for a URL) for the items `item_ids`, in the order of the manifest."""
    return dict(
        db.execute(
            "SELECT item_id, path FROM items WHERE item_id IN (SELECT value FROM json_each(?)) ORDER BY seq",
            (json.dumps(item_ids),),
        )
    )


def item_files(db: sqlite.Connection, item_ids: Sequence[str]) -> list[ItemFile]:
    """Return the `ItemFile`s of `item_ids`, in any order; a duplicate without a hash gets the earlier item's hash."""
    query = """
        SELECT i.item_id, i.url, i.path, coalesce(i.content_sha256, o.content_sha256)
        FROM items i LEFT JOIN items o ON o.item_id = i.duplicate_of WHERE i.item_id IN (SELECT value FROM json_each(?))
    """
    return list(map(ItemFile._make, db.execute(query, (json.dumps(list(item_ids)),))))


def pending_asset_marks(db: sqlite.Connection) -> Iterator[tuple[int, AssetMarks]]:
    """Yield (row number, properties that identify its image or video) of pending rows, in the manifest's order."""
    for seq, *marks in db.execute(_PENDING_MARKS):
        yield seq, AssetMarks._make(marks)
