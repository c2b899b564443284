"""Write the rows of a plan to the journal, find duplicates, use cached answers, and set how many frames are charged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

import orjson

from lightmeter import sqlite
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, HAS_FRAMES, IS_ROW, ROW_OF, frame_seq
from lightmeter.manifest.tar_members import TarMember
from lightmeter.media.video.sampling import WHOLE_SECONDS_SQL


@dataclass(frozen=True, slots=True)
class PlannedFinding:
    """A problem or property of a row that the check `name` found; `severity` is `info`, `warning` or `error`.

    `value` is the number that `message` is about, or None. `facts` holds further details, as a JSON object.
    """

    name: str
    severity: str
    message: str
    value: float | None
    facts: str


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer of the service to an earlier run, used again in this run.

    Attributes:
        sha256: Hash of the answer's bytes, in hexadecimal.
        request_id: The service's id of the request; None if the service reported none.
        answered_at: When the service answered, in seconds since the epoch.
        raw: The answer's bytes, compressed with zstd.
    """

    sha256: str
    request_id: str | None
    answered_at: float
    raw: bytes


@dataclass(frozen=True, slots=True)
class CachedRow:
    """A manifest row (number `seq`) that needs no request, because an answer to an earlier run covers it.

    `asset` and `name` are the position (from 0) and the name of the row's image or video in that answer.
    """

    seq: int
    asset: int
    name: str | None
    answer: CachedAnswer


@dataclass(frozen=True, slots=True)
class PlannedFrame:
    """A frame of a video that is to be sent as an image.

    Attributes:
        frame: Number among the frames that the service would analyze if it got the whole video, from 0.
        index: Number among all frames of the video, from 0.
        time_s: Time of the frame, in seconds from the start of the video.
    """

    frame: int
    index: int
    time_s: float


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row of the manifest, or of a video frame, after planning. Its `status` says whether it is to be sent.

    Attributes:
        seq: Number of the row in the manifest, from 0; for a video frame, the number that `frame_seq` returns.
        item_id: Id of the row. If an earlier row has the same id, `add_rows` replaces it.
        url: URL or path of the image or video, as in the manifest.
        path: Absolute path of a local file; None for a URL.
        identity: URL or path in canonical form, to find rows with the same one; None without an image or video.
        kind: `image`, `video`, or None while unknown.
        extra: The manifest's additional columns, as JSON.
        own_id: Whether `item_id` comes from the manifest; otherwise lightmeter made it.
        status: `pending` (to be sent), `skipped`, `duplicate` or another one of `journal.queries.items.STATUSES`.
        reason: Code for why the row is not sent, such as `same_asset`; None if the row is to be sent.
        error: Why the row is not sent, as a sentence for the user; None if the row is to be sent.
        frames_low: Least number of frames that will be charged; 1 for an image.
        frames_high: Most frames that will be charged; None if no bound is known.
        width: Width in pixels; None while unknown.
        height: Height in pixels; None while unknown.
        duration_s: Length of a video, in seconds; None if unknown or not a video.
        content_sha256: Hash of the content, in hexadecimal; None if unknown.
        findings: What pre-checks found.
        duplicate_of: `item_id` of an earlier row with the same image or video; None without one.
        size_bytes: Length of the content in bytes; None if it is not known.
        perceptual_hash: 64 bits, nearly equal for images that look the same; None if the content was not decoded.
        duplicate_distance: Number of bits in which `perceptual_hash` differs from the hash of the row `duplicate_of`.
            None if the row is no duplicate, or if the contents, URLs or paths of the two rows are equal.
        fingerprint: A small copy of the image, to find images that look the same; it is not stored.
        frames: The frames that are sent in place of a video; `add_rows` writes a row for each. Empty if the image or
            video itself is sent.
    """

    seq: int
    item_id: str
    url: str
    path: str | None
    identity: str | None
    kind: str | None
    extra: str
    own_id: bool
    status: str = "pending"
    reason: str | None = None
    error: str | None = None
    frames_low: int = 0
    frames_high: int | None = 0
    width: int | None = None
    height: int | None = None
    duration_s: float | None = None
    content_sha256: str | None = None
    findings: tuple[PlannedFinding, ...] = ()
    duplicate_of: str | None = None
    size_bytes: int | None = None
    perceptual_hash: int | None = None
    duplicate_distance: int | None = None
    fingerprint: bytes | None = None
    frames: tuple[PlannedFrame, ...] = ()


class NearDuplicate(NamedTuple):
    """An earlier row (`seq`) whose image looks the same; the perceptual hashes differ in `distance` of 64 bits."""

    seq: int
    distance: int


class NearDuplicateSearch(Protocol):
    """Finds images that look the same (near-duplicates) among the rows of a plan; `add_rows` uses it."""

    def find_or_add(self, row: PlannedRow) -> NearDuplicate | None:
        """Return an earlier row whose image looks like that of `row`; if none does, store `row` and return None."""


_INSERT: Final = """
INSERT INTO items (seq, item_id, url, path, identity, kind, extra, status, reason, error, duplicate_of,
                   frames_low, frames_high, width, height, duration_s, content_sha256, size_bytes, perceptual_hash,
                   duplicate_distance)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_INSERT_FINDING: Final = "INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?)"

_SAME_ASSET: Final = """
SELECT (SELECT item_id FROM items WHERE identity = ?1 AND frames_low > 0 LIMIT 1),
       (SELECT item_id FROM items WHERE content_sha256 = ?2 AND frames_low > 0 LIMIT 1)
"""
"""SQL: ids of two rows that will be charged, or null: one with the URL or path `?1`, one with the content hash `?2`."""


@sqlite.command
def add_rows(
    db: sqlite.Connection,
    rows: Sequence[PlannedRow],
    *,
    find_duplicates: bool = True,
    near_duplicates: NearDuplicateSearch | None = None,
) -> None:
    """Write new rows, and mark rows that repeat an earlier row.

    A row with the same image or video as an earlier row becomes a `duplicate`. A row with the same id from the manifest
    as an earlier row becomes `skipped`.

    Args:
        db: The journal.
        rows: The rows, in the order of the manifest.
        find_duplicates: Whether rows with the same URL, path or content as an earlier row become duplicates.
        near_duplicates: A search for images that look the same: rows with such images also become duplicates. With
            None, only equal URLs, paths and contents are found.
    """
    for row in rows:
        own = _with_own_id(db, row)
        if own.status == "pending" and find_duplicates:
            own = _without_same_asset(db, own)
        if own.status == "pending" and near_duplicates is not None:
            own = _without_near_duplicate(db, own, near_duplicates)
        if own.status != "pending":
            own = replace(own, frames_low=0, frames_high=0, frames=())
        _insert(db, own)
        for frame in own.frames:
            _insert(db, _with_unused_id(db, _frame_row(own, frame)))


def _frame_row(video: PlannedRow, frame: PlannedFrame) -> PlannedRow:
    """Return the row for a video frame. Its identity and hash are those of the video, with the frame's number added."""
    return PlannedRow(
        seq=frame_seq(video.seq, frame.frame),
        item_id=f"{video.item_id}#frame {frame.frame}",
        url=video.url,
        path=video.path,
        identity=f"{video.identity}#frame {frame.index}",
        kind="image",
        extra=orjson.dumps(frame).decode(),
        own_id=False,
        frames_low=1,
        frames_high=1,
        content_sha256=None if video.content_sha256 is None else f"{video.content_sha256}#frame {frame.index}",
    )


def _with_own_id(db: sqlite.Connection, row: PlannedRow) -> PlannedRow:
    """Return `row`. An id that an earlier row has is replaced; if the manifest gave it, a pending row is `skipped`.

    The key of a sample in a tar, which other tars may have too, is replaced by the row's path, which names the tar.
    """
    own_id = row.item_id
    in_tar = row.path is not None and TarMember.from_path(row.path) is not None
    row = _with_unused_id(db, row, row.url if in_tar and not row.own_id else None)
    if row.item_id != own_id and row.own_id and row.status == "pending":
        error = f"The id {own_id!r} stands in an earlier row."
        return replace(row, status="skipped", reason="id_repeated", error=error)
    return row


def _without_same_asset(db: sqlite.Connection, row: PlannedRow) -> PlannedRow:
    ((same_identity, same_content),) = db.execute(_SAME_ASSET, (row.identity, row.content_sha256))
    original = same_identity or same_content
    return row if original is None else replace(row, status="duplicate", reason="same_asset", duplicate_of=original)


def _without_near_duplicate(db: sqlite.Connection, row: PlannedRow, search: NearDuplicateSearch) -> PlannedRow:
    found = search.find_or_add(row)
    if found is None:
        return row
    original = db.execute("SELECT item_id FROM items WHERE seq = ?", (found.seq,)).get
    return replace(
        row, status="duplicate", reason="near_duplicate", duplicate_of=original, duplicate_distance=found.distance
    )


def _with_unused_id(db: sqlite.Connection, row: PlannedRow, other_id: str | None = None) -> PlannedRow:
    while db.execute("SELECT 1 FROM items WHERE item_id = ?", (row.item_id,)).fetchone():
        row, other_id = replace(row, item_id=other_id or f"{row.item_id}#{row.seq}"), None
    return row


def _insert(db: sqlite.Connection, row: PlannedRow) -> None:
    names = (row.seq, row.item_id, row.url, row.path, row.identity, row.kind, row.extra)
    outcome = (row.status, row.reason, row.error, row.duplicate_of, row.frames_low, row.frames_high)
    content = (row.width, row.height, row.duration_s, row.content_sha256, row.size_bytes)
    db.execute(_INSERT, (*names, *outcome, *content, _signed(row.perceptual_hash), row.duplicate_distance))
    for finding in row.findings:
        values = (row.seq, finding.name, finding.severity, finding.message, finding.value, finding.facts)
        db.execute(_INSERT_FINDING, values)


def _signed(bits: int | None) -> int | None:
    """Return an unsigned 64-bit hash as the signed integer that SQLite can store; None stays None."""
    return bits if bits is None or bits < 1 << 63 else bits - (1 << 64)


@sqlite.command
def restore_rows(db: sqlite.Connection, rows: Sequence[PlannedRow]) -> None:
    """Write the rows of a saved plan as they are: ids and duplicates were checked when the plan was made."""
    for row in rows:
        _insert(db, row)


_ROWS: Final = """
SELECT seq, item_id, url, path, identity, kind, extra, 0, status, reason, error, frames_low, frames_high,
       width, height, duration_s, content_sha256, duplicate_of, size_bytes, perceptual_hash, duplicate_distance
FROM items WHERE seq BETWEEN ?1 AND ?2 OR seq BETWEEN ?3 AND ?4 ORDER BY seq
"""

_FINDINGS: Final = """
SELECT seq, name, severity, message, value, facts FROM findings WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq, rowid
"""

_CACHED_ROWS: Final = """
SELECT r.seq, i.asset, i.name, e.sha256 FROM reused r JOIN items i USING (seq) JOIN earlier e USING (earlier_id)
WHERE r.seq BETWEEN ?1 AND ?2 OR r.seq BETWEEN ?3 AND ?4 ORDER BY r.seq
"""

_LAST_ROW: Final = FIRST_FRAME_SEQ - 1


def planned_rows(
    db: sqlite.Connection, first: int = 0, last: int = _LAST_ROW
) -> Iterator[tuple[PlannedRow, tuple[int, str | None, str] | None]]:
    """Yield pairs (row of the plan, its cached answer of an earlier run or None), in the order of the manifest.

    After them come the rows of the frames that are sent in place of videos among them. A cached answer is a tuple
    (position of the row's image or video in the answer, its name there, the answer's sha256).

    Args:
        db: The journal.
        first: Number of the first manifest row to yield, counted from 0.
        last: Number of the last manifest row to yield; by default the last row of the manifest.
    """
    seqs = (first, last, frame_seq(first, 0), frame_seq(last + 1, 0) - 1)
    findings: Iterator[Any] = iter(db.execute(_FINDINGS, seqs[:2]))
    cached: Iterator[Any] = iter(db.execute(_CACHED_ROWS, seqs))
    finding, cached_row = next(findings, None), next(cached, None)
    values: Any
    for values in db.execute(_ROWS, seqs):
        seq, row_findings, answer = values[0], [], None
        while finding is not None and finding[0] == seq:
            row_findings.append(PlannedFinding(*finding[1:]))
            finding = next(findings, None)
        if cached_row is not None and cached_row[0] == seq:
            answer, cached_row = cached_row[1:], next(cached, None)
        *head, duplicate_of, size_bytes, bits, distance = values
        hash_bits = None if bits is None else bits % (1 << 64)
        yield PlannedRow(*(*head, tuple(row_findings), duplicate_of, size_bytes, hash_bits, distance)), answer


def before_sending(row: PlannedRow) -> PlannedRow:
    """Return a copy of a planned `row` with the status from the plan: before it was sent or answered from a cache."""
    return replace(row, status="pending", reason=None, error=None) if row.frames_low else row


@sqlite.command
def index_images(db: sqlite.Connection, rows: Sequence[PlannedRow], search: NearDuplicateSearch) -> None:
    """Add images that are in the journal already to `search`, so that later rows can become their near-duplicates.

    Args:
        db: The journal.
        rows: The rows with the images. Duplicates and skipped rows among them are left out.
        search: The search for images that look the same (near-duplicates).
    """
    for row in rows:
        if db.execute("SELECT frames_low FROM items WHERE seq = ?", (row.seq,)).get:
            search.find_or_add(row)


@sqlite.command
def set_frames(db: sqlite.Connection, groups: Sequence[tuple[str | None, int | None, int, int | None]]) -> None:
    """Set how many frames will be charged for the rows that are pending, over budget or answered.

    Each tuple in `groups` is for the rows of one media type and video length: (type, or None if unknown; seconds,
    rounded up, or None if unknown; least frames; most frames, or None if unbounded).
    """
    db.execute("CREATE TEMP TABLE lengths (kind TEXT, seconds INTEGER, low INTEGER, high INTEGER)")
    try:
        db.executemany("INSERT INTO lengths VALUES (?, ?, ?, ?)", groups)
        db.execute(
            "UPDATE items SET frames_low = low, frames_high = high FROM lengths "  # noqa: S608 (a constant expression)
            f"WHERE items.kind IS lengths.kind AND {WHOLE_SECONDS_SQL} IS lengths.seconds "
            f"AND status IN ('pending', 'over_budget', 'ok') AND NOT {HAS_FRAMES.format('items', '')}"
        )
    finally:
        db.execute("DROP TABLE lengths")


_PLACE_FRAMES: Final = f"""
UPDATE items SET send_order = (SELECT v.send_order FROM items v WHERE v.seq = {ROW_OF.format("items.seq")})
WHERE NOT {IS_ROW}
"""  # noqa: S608 (constant expressions)


@sqlite.command
def set_places(db: sqlite.Connection, seqs: Sequence[int]) -> None:
    """Store the order in which rows are sent: `seqs` lists the row numbers; if it is empty, the manifest's order holds.

    Frames that are sent in place of a video get the video's position in the order.
    """
    if not seqs:
        db.execute("UPDATE items SET send_order = NULL WHERE send_order IS NOT NULL")
    db.executemany("UPDATE items SET send_order = ? WHERE seq = ?", enumerate(seqs))
    db.execute(_PLACE_FRAMES)


@sqlite.command
def apply_cached_rows(db: sqlite.Connection, rows: Sequence[CachedRow]) -> None:
    """Store answers of earlier runs and mark the rows that they answer as `ok`; nothing is sent or charged for them."""
    for row in rows:
        answer = row.answer
        db.execute(
            "INSERT INTO earlier (sha256, request_id, answered_at, raw) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (answer.sha256, answer.request_id, answer.answered_at, answer.raw),
        )
        db.execute("INSERT INTO reused SELECT ?, earlier_id FROM earlier WHERE sha256 = ?", (row.seq, answer.sha256))
        db.execute(
            "UPDATE items SET status = 'ok', reason = 'cached', asset = ?, name = ? WHERE seq = ?",
            (row.asset, row.name, row.seq),
        )


def clear_cached_rows(db: sqlite.Connection) -> None:
    """Remove all cached answers from the plan and make their rows pending again."""
    db.execute(
        "UPDATE items SET status = 'pending', reason = NULL, asset = NULL, name = NULL "
        "WHERE seq IN (SELECT seq FROM reused)"
    )
    db.execute("DELETE FROM reused")
    db.execute("DELETE FROM earlier")
