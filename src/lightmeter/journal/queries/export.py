"""Queries for the export of a run's journal to tables: items, answers, requests, results of pre-checks.

A folder may hold several runs. The parameter `run` of a function is the position of a run among the runs of the folder:
0 is the oldest. Functions with this parameter need a connection to which the database `latest` is attached.
`build_latest_runs` writes this database, and `attach_latest_runs` attaches it. It says for each item which run has
its newest state and which its newest answer about the image or video that it has now.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.compression import decompress
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, FRAME_OF, FRAME_SEQS, HAS_FRAMES, ROW_OF

_ANSWERS_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 2**20


@dataclass(frozen=True, slots=True)
class SubmissionRange:
    """A range of submissions (POSTs) whose results are exported together, as one Parquet file of each table.

    The ranges of a run follow each other by submission id. A submission whose charge is known never changes, so it is
    exported only once. A submission whose charge is still unknown is left to a later range. The last range of a run has
    everything that is in no other range: requests whose charge is not known yet, items without an answer, and answers
    of earlier runs.

    Attributes:
        after: The last submission id of the previous range; submissions with larger ids are in this range.
        carried: Ids up to `after` that are in this range all the same, because their charge was still unknown when the
            previous range was exported.
        through: The last submission id of this range; None for the last range.
        open: Ids up to `through` that are not in this range, because their charge is still unknown.
        answers: Number of submissions with a known charge in the range; 0 for the last range, whatever it holds.
    """

    after: int = 0
    carried: tuple[int, ...] = ()
    through: int | None = None
    open: tuple[int, ...] = ()
    answers: int = 0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SubmissionRange:
        """Return a range of submissions from `values`, the fields of the range as read from JSON."""
        known: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in values.items()}
        return cls(**known)

    @property
    def next(self) -> SubmissionRange:
        """The range without an end (`through` is None) of all submissions in neither this range nor an earlier one.

        A range that has no end itself is its own `next`.
        """
        return self if self.through is None else SubmissionRange(self.through, self.open)

    def parameters(self, run: int) -> dict[str, Any]:
        """Return the named SQL parameters that select this range.

        `run` is the position of the run among the runs of the folder; 0 is the oldest.
        """
        return {
            "run": run,
            "after": self.after,
            "carried": json.dumps(self.carried),
            "through": self.through,
            "open": json.dumps(self.open),
        }


_NOT_EARLIER: Final = "(s.submission_id > :after OR s.submission_id IN (SELECT value FROM json_each(:carried)))"
# Here and below, a plus sign keeps SQLite from an index or order in which it would visit the requests of all ranges.
_SETTLED_IN_RANGE: Final = f"""+s.state = 'settled' AND {_NOT_EARLIER} AND s.submission_id <= :through
    AND s.submission_id NOT IN (SELECT value FROM json_each(:open))"""  # noqa: S608 (our own words, here and below)
_IN_LAST_RANGE: Final = f"(s.state <> 'settled' OR {_NOT_EARLIER})"

_NEWEST_STATE: Final = "coalesce((SELECT run FROM latest.stated WHERE item_id = i.item_id), :run) = :run"
_NEWEST_ANSWER: Final = "coalesce((SELECT run FROM latest.answered WHERE item_id = i.item_id), :run) = :run"

_OF_FRAMES: Final = f"""CASE WHEN i.kind = 'video' THEN (
    SELECT {{0}} FROM items f LEFT JOIN submissions fs ON fs.submission_id = f.submission_id
    LEFT JOIN reused fr ON fr.seq = f.seq LEFT JOIN earlier fe ON fe.earlier_id = fr.earlier_id
    LEFT JOIN answer_retries fa ON fa.seq = f.seq LEFT JOIN submissions fg ON fg.submission_id = fa.submission_id
    WHERE f.seq {FRAME_SEQS.format("{1}")}) END"""  # noqa: S608
"""SQL: the aggregate `{0}` over the frames that were sent in place of a video.

`{1}` is the number of the video's row. The result is null if the row `i` is not a video.
"""

_ASSETS: Final = f"""
SELECT i.item_id, i.url, i.status,
       iif(:run < (SELECT run FROM latest.newest) OR i.seq IN (SELECT seq FROM gone), 'gone', i.reason) AS reason,
       i.error, iif(i.path LIKE '/%', i.path, NULL) AS file, coalesce(i.kind, o.kind) AS kind,
       coalesce(i.name, o.name) AS name,
       coalesce(s.request_id, e.request_id) AS request_id, i.duplicate_of,
       coalesce(i.width, o.width) AS width, coalesce(i.height, o.height) AS height,
       coalesce(i.duration_s, o.duration_s) AS duration_s,
       coalesce(i.content_sha256, o.content_sha256) AS content_sha256, z.content_bytes,
       coalesce(i.size_bytes, o.size_bytes) AS size_bytes,
       iif(coalesce(i.perceptual_hash, o.perceptual_hash) IS NULL, NULL,
           printf('%016x', coalesce(i.perceptual_hash, o.perceptual_hash))) AS perceptual_hash, i.duplicate_distance,
       coalesce(s.answered_at, e.answered_at, {
    _OF_FRAMES.format("max(coalesce(fs.answered_at, fe.answered_at))", "coalesce(o.seq, i.seq)")
}) AS answered_at, i.extra,
       iif(i.submission_id IS NULL, {_OF_FRAMES.format("sum(fs.paid)", "i.seq")}, s.paid) AS paid,
       iif(i.submission_id IS NULL, 1,
           (SELECT count(*) FROM items p WHERE p.submission_id = i.submission_id)) AS sharers,
       (SELECT count(*) FROM items p WHERE p.submission_id = i.submission_id AND p.seq < i.seq) AS place,
       coalesce((SELECT paid FROM answer_retries g JOIN submissions USING (submission_id) WHERE g.seq = i.seq),
                {_OF_FRAMES.format("sum(fg.paid)", "i.seq")}) AS paid_again,
       (SELECT credits FROM latest.paid WHERE item_id = i.item_id) AS paid_in_all,
       coalesce(iif(i.submission_id IS NULL, {_OF_FRAMES.format("max(fs.said = 0)", "i.seq")}, s.said = 0), 0)
       OR coalesce((SELECT said = 0 FROM answer_retries g JOIN submissions USING (submission_id) WHERE g.seq = i.seq),
                   {_OF_FRAMES.format("max(fg.said = 0)", "i.seq")}, 0)
       OR EXISTS (SELECT 1 FROM latest.paid WHERE item_id = i.item_id AND credits IS NULL) AS charge_unreported
FROM items i LEFT JOIN items o ON o.item_id = i.duplicate_of
     LEFT JOIN submissions s ON s.submission_id = coalesce(i.submission_id, o.submission_id)
     LEFT JOIN reused r ON r.seq = coalesce(o.seq, i.seq) LEFT JOIN earlier e ON e.earlier_id = r.earlier_id
     LEFT JOIN (SELECT seq AS of, max(json_extract(facts, '$.size_bytes')) AS content_bytes FROM findings
                WHERE name IN ('reach', 'decode') AND severity = 'info' {{findings}} GROUP BY seq) z ON z.of = i.seq
WHERE i.seq < {FIRST_FRAME_SEQ} AND {_NEWEST_STATE} AND {{selected}} ORDER BY i.seq
"""  # noqa: S608
_SEQS_IN_RANGE: Final = f"""seq IN (
    SELECT p.seq FROM submissions s JOIN items p ON p.submission_id = s.submission_id WHERE {_SETTLED_IN_RANGE}
    UNION ALL
    SELECT d.seq FROM submissions s JOIN items p ON p.submission_id = s.submission_id
           JOIN items d ON d.duplicate_of = p.item_id WHERE {_SETTLED_IN_RANGE})
"""  # noqa: S608
_ASSETS_IN_LAST_RANGE: Final = f"(s.submission_id IS NULL OR {_IN_LAST_RANGE})"

# The rows are in the order of the manifest, so that tables do not depend on the order of the answers.
_ANSWERS: Final = """
SELECT f.submission_id, f.request_id, a.raw
FROM (SELECT s.submission_id, s.request_id, min({row}) AS first
      FROM submissions s LEFT JOIN items i USING (submission_id)
      WHERE +s.state IN ('settled', 'charge_unknown') AND {selected}
      GROUP BY +s.submission_id ORDER BY first, min(i.seq), s.submission_id LIMIT -1) f
CROSS JOIN answers a ON a.submission_id = f.submission_id
"""
_EARLIER: Final = """
SELECT f.earlier_id, e.request_id, e.raw
FROM (SELECT r.earlier_id, min(i.seq) AS first FROM reused r JOIN items i ON i.seq = {row}
      GROUP BY r.earlier_id ORDER BY first, min(r.seq) LIMIT -1) f
CROSS JOIN earlier e ON e.earlier_id = f.earlier_id
""".format(row=ROW_OF.format("r.seq"))  # noqa: S608

# One statement reads the items of many answers, duplicates after originals: a statement for each answer would take
# longer than all other work on it.
_ITEMS_OF: Final = """
SELECT w.value, i.item_id, i.url, iif({newest}, o.asset, NULL), {frame}
FROM json_each(:keys) w CROSS JOIN {answered} CROSS JOIN items i ON i.seq = {row}
UNION ALL
SELECT w.value, i.item_id, i.url, iif({newest}, o.asset, NULL), {frame}
FROM json_each(:keys) w CROSS JOIN {answered} CROSS JOIN items p ON p.seq = {row}
     CROSS JOIN items i ON i.duplicate_of = p.item_id
"""
_ROW_AND_FRAME: Final = {"row": ROW_OF.format("o.seq"), "frame": FRAME_OF.format("o.seq")}
_ITEMS_OF_SUBMISSIONS: Final = _ITEMS_OF.format(
    newest=_NEWEST_ANSWER, answered="items o ON o.submission_id = w.value", **_ROW_AND_FRAME
)
_ITEMS_OF_EARLIER: Final = _ITEMS_OF.format(
    newest=_NEWEST_ANSWER,
    answered="reused r ON r.earlier_id = w.value CROSS JOIN items o ON o.seq = r.seq",
    **_ROW_AND_FRAME,
)

_REQUESTS: Final = """
SELECT request_id, state, sent_at, answered_at, assets, iif(said = 0, NULL, paid) AS credits_paid,
       remaining AS credits_remaining, http_status, attempts, polls
FROM submissions s WHERE {selected} ORDER BY submission_id
"""

_FINDINGS: Final = f"""
SELECT i.item_id, i.url, f.name AS finding, f.severity, f.message, f.value, f.facts
FROM findings f JOIN items i USING (seq) WHERE i.seq < {FIRST_FRAME_SEQ} AND {_NEWEST_STATE} ORDER BY f.seq, f.rowid
"""  # noqa: S608

_QUESTION: Final = f"""
SELECT i.item_id, i.url, {FRAME_OF.format("o.seq")}, o.status, o.reason, o.error, o.asset,
       o.submission_id, f.earlier_id, coalesce(a.raw, e.raw),
       coalesce(g.seq, b.seq) IS NOT NULL, g.reason, iif(b.seq IS NULL, s.state, 'settled'), s.error,
       coalesce(n.raw, x.raw), o.url, o.path
FROM items i JOIN items v ON v.item_id = coalesce(i.duplicate_of, i.item_id)
     JOIN items o ON o.seq = v.seq AND NOT {HAS_FRAMES.format("v", "")} OR o.seq {FRAME_SEQS.format("v.seq")}
     LEFT JOIN answers a ON a.submission_id = o.submission_id
     LEFT JOIN reused f ON f.seq = o.seq LEFT JOIN earlier e ON e.earlier_id = f.earlier_id
     LEFT JOIN answer_retries g ON g.seq = o.seq LEFT JOIN submissions s ON s.submission_id = g.submission_id
     LEFT JOIN answers n ON n.submission_id = g.submission_id
     LEFT JOIN repeated b ON b.seq = o.seq LEFT JOIN earlier x ON x.earlier_id = b.earlier_id
WHERE i.seq < {FIRST_FRAME_SEQ} AND {_NEWEST_ANSWER}
ORDER BY i.seq, o.seq
"""  # noqa: S608

_OPEN_OR_SETTLED: Final = """
SELECT submission_id, state = 'settled' FROM submissions WHERE state <> 'voided' AND submission_id > :after UNION ALL
SELECT submission_id, state = 'settled' FROM submissions
WHERE state <> 'voided' AND submission_id IN (SELECT value FROM json_each(:carried)) ORDER BY submission_id
"""


class AnsweredItem(NamedTuple):
    """An item (manifest row) that an answer is about, and the position of its image or video in that answer.

    `asset` is the position in the answer's list `all.assets`. It is None if the answer has no entry for the item, if a
    later run has a newer answer about the item, or if the item has another image or video in its latest run. `frame` is
    None unless frames of a video were sent in its place. Then `frame` is the number of the frame, from 0, among the
    frames that the service would analyze if it got the whole video.
    """

    item_id: str
    url: str
    asset: int | None
    frame: int | None


class JournalAnswer(NamedTuple):
    """An answer's body, decompressed; the service's id of its request, if it has one; and the items that it answers."""

    raw: bytes
    request_id: str | None
    items: Sequence[AnsweredItem]


def journal_mark(db: sqlite.Connection) -> str:
    """Return a text that changes whenever rows are added to a journal or a request changes its state.

    An export compares this text with the text of the previous export, to find out whether there is anything new to
    export. It has the number of rows, a hyphen, and the number of changes of state.
    """
    query = "SELECT (SELECT count(*) FROM items) || '-' || (SELECT coalesce(max(rowid), 0) FROM transitions)"
    return str(db.execute(query).get)  # (transitions are never removed: the highest rowid is their number)


def settled_ranges(db: sqlite.Connection, rest: SubmissionRange, answers_each: int) -> Iterator[SubmissionRange]:
    """Split those submissions (POSTs) of `rest` whose charge is known into ranges.

    Each range becomes one file of every table.

    Args:
        db: The journal.
        rest: The submissions that are not exported yet: a range whose `through` is None.
        answers_each: Number of submissions in each range. The last range may have fewer, the first may have more.
    """
    after, carried, still_open, answers, through = rest.after, rest.carried, list[int](), 0, rest.after
    for submission_id, is_settled in db.execute(_OPEN_OR_SETTLED, rest.parameters(0)):
        through = max(through, submission_id)
        if not is_settled:
            still_open.append(submission_id)
            continue
        answers += 1
        if answers >= answers_each and submission_id > rest.after:  # carried ones are not divided
            yield SubmissionRange(after, carried, through, tuple(still_open), answers)
            after, carried, answers = through, tuple(still_open), 0
    if answers:
        yield SubmissionRange(after, carried, through, tuple(still_open), answers)


def asset_rows(db: sqlite.Connection, run: int, submissions: SubmissionRange) -> sqlite.Cursor:
    """Return a cursor over the rows of the exported table `assets`, for the items in a range of submissions of a run.

    The rows have the order of the manifest. Items that a later run of the folder also has are left out.
    `db` is the journal of run number `run` of the folder (0 is the oldest). `attach_latest_runs` must have attached the
    database `latest` to it, which says for each item which run has its newest state and which its newest answer.
    """
    if submissions.through is None:
        query = _ASSETS.format(selected=_ASSETS_IN_LAST_RANGE, findings="")
    else:
        query = _ASSETS.format(selected=f"i.{_SEQS_IN_RANGE}", findings=f"AND {_SEQS_IN_RANGE}")
    return db.execute(query, submissions.parameters(run))


def request_rows(db: sqlite.Connection, submissions: SubmissionRange) -> sqlite.Cursor:
    """Return a cursor over the rows of the exported table `requests`, one for each request of a submission range."""
    return db.execute(_REQUESTS.format(selected=_selected(submissions)), submissions.parameters(0))


def finding_rows(db: sqlite.Connection, run: int) -> sqlite.Cursor:
    """Return a cursor over the rows of the exported table `prechecks`, for the items of a run.

    Items that a later run of the folder also has are left out.
    `db` is the journal of run number `run` of the folder (0 is the oldest). `attach_latest_runs` must have attached the
    database `latest` to it, which says for each item which run has its newest state and which its newest answer.
    """
    return db.execute(_FINDINGS, {"run": run})


def question_rows(db: sqlite.Connection, run: int) -> Iterator[tuple[Any, ...]]:
    """Yield each item of a run with its answers to the user's question (`--ask`), in the order of the manifest.

    Each result is a tuple of 17 values: item id, URL, frame number or None, status, reason, error, position in the
    first answer, submission id, id of a cached answer, first answer (compressed), whether a second answer was wanted,
    why the second answer cannot be requested, state of the second request, error of the second request, second answer
    (compressed), URL of the row that was sent, local path of the row that was sent.

    If frames of a video were sent in its place, there is one tuple for each frame. Duplicates have the answers of the
    earlier item that they repeat. An item that several runs of the folder have belongs only to the latest run with an
    answer about the image or video that it has now, or, without any, to the latest run that has the item. The other
    runs leave it out.

    `db` is the journal of run number `run` of the folder (0 is the oldest). `attach_latest_runs` must have attached the
    database `latest` to it, which says for each item which run has its newest state and which its newest answer.
    """
    return iter(db.execute(_QUESTION, {"run": run}))


def journal_answers(db: sqlite.Connection, run: int, submissions: SubmissionRange) -> Iterator[JournalAnswer]:
    """Yield the answers to a range of submissions (POSTs) of a run, in the order of the manifest.

    Answers of earlier runs that the run uses again belong to none of its submissions. They follow at the end of the
    last range, that is, if `submissions.through` is None.

    Args:
        db: The journal of the run. `attach_latest_runs` must have attached the database `latest` to it, which says for
            each item which run has its newest state and which its newest answer.
        run: Position of the run among the runs of the folder; 0 is the oldest.
        submissions: The range of submissions.
    """
    parameters = submissions.parameters(run)
    query = _ANSWERS.format(selected=_selected(submissions), row=ROW_OF.format("i.seq"))
    answers = db.execute(query, parameters)
    yield from _with_items(db, answers, _ITEMS_OF_SUBMISSIONS, run)
    if submissions.through is None:
        yield from _with_items(db, db.execute(_EARLIER), _ITEMS_OF_EARLIER, run)


def _selected(submissions: SubmissionRange) -> str:
    return _IN_LAST_RANGE if submissions.through is None else _SETTLED_IN_RANGE


def _with_items(db: sqlite.Connection, answers: sqlite.Cursor, items_of: str, run: int) -> Iterator[JournalAnswer]:
    for batch in _decompress_in_batches(answers):
        items: dict[int, list[AnsweredItem]] = defaultdict(list)
        for key, *item in db.execute(items_of, {"run": run, "keys": json.dumps([key for key, _, _ in batch])}):
            items[key].append(AnsweredItem(*item))
        for key, request_id, raw in batch:
            yield JournalAnswer(raw, request_id, items[key])


def _decompress_in_batches(answers: sqlite.Cursor) -> Iterator[list[tuple[int, str | None, bytes]]]:
    """Yield the rows of `answers` in lists that fit into memory, with the answers decompressed.

    A row is (id of the submission or of the cached answer, the service's id of the request, the answer's bytes).
    """
    batch, size_bytes = [], 0
    for key, request_id, compressed in answers:
        batch.append((key, request_id, decompress(compressed)))
        size_bytes += len(batch[-1][2])
        if len(batch) == _ANSWERS_AT_ONCE or size_bytes >= _BYTES_AT_ONCE:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
