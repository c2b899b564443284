"""Paid once, also across runs: rows are answered with what an earlier run paid for, where the settings allow it.

Off unless the settings name a folder: pictures at a URL change, and whoever pays decides how old an answer may be.
Looked up when a plan is made, so that its price leaves them out; filled from the journal when a run ends, which needs
no hook in the middle of spending and loses nothing to a kill: the next start of the run fills what is missing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import apsw
import orjson

from lightmeter import __version__
from lightmeter.ask.question import Ask
from lightmeter.cache.answer_cache import AnswerCache, AssetFingerprint, CachedAsset
from lightmeter.client.base_url import canonical_base_url
from lightmeter.embedded_service import is_embedded
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.export.answer_check import all_descriptions_valid
from lightmeter.facts.lenient_decode import decode_answer_lenient
from lightmeter.facts.lenient_json import parse_object_strict
from lightmeter.facts.wire_answer import WireAnswer
from lightmeter.journal.compression import decompress
from lightmeter.journal.plan_rows import CachedAnswer, CachedRow, reuse
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.options import REQUEST_OPTIONS, Options
from lightmeter.settings import Settings

__all__ = ["cache_answers", "find_planned_answers", "question_digest", "reuse_answers"]

DAY_S: Final = 86_400.0
CHUNK: Final = 512
"""Rows or answers handled together: one commit each."""

_log: Final = logging.getLogger(__name__)

_WAITING: Final = """
SELECT i.seq, i.identity, i.path, i.content_sha256, f.facts
FROM items i LEFT JOIN findings f ON f.seq = i.seq AND f.name = 'reach' WHERE i.status = 'pending' ORDER BY i.seq
"""

_SETTLED: Final = """
SELECT t.rowid, s.request_id, s.answered_at, a.raw, i.asset, i.name, i.identity, i.path, i.content_sha256, f.facts
FROM transitions t JOIN submissions s USING (submission_id) JOIN answers a USING (submission_id)
     JOIN items i ON i.submission_id = s.submission_id AND i.status = 'ok' AND i.asset IS NOT NULL
     LEFT JOIN findings f ON f.seq = i.seq AND f.name = 'reach'
WHERE t.event = 'settle' AND t.rowid > ? ORDER BY t.rowid
"""


def question_digest(options: Options, settings: Settings) -> str | None:
    """A digest of what is asked and of whom; None when nobody can say, for the account chooses the back ends.

    The embedded service's models are those of this version of lightmeter.
    """
    if is_embedded(options, settings):
        service = f"embedded {__version__}"
    elif options.backends:
        service = canonical_base_url(options.base_url or settings.base_url or "")
    else:
        return None
    asked = {name: getattr(options, name) for name in REQUEST_OPTIONS if name != "ask"}
    asked |= {
        "prompt": options.sent_prompt,
        "features": sorted(options.features),
        "backends": sorted(options.backends),
        "service": service,
    }
    return hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()


def reuse_answers(journal: Journal, options: Options, settings: Settings, now: float) -> int:
    """Answer rows of a plan that wait with what earlier runs were answered; returns how many.

    Local files are known by their content alone: one that no pre-check looked at waits on.

    Args:
        journal: The plan's, open for writing.
        options: What is asked.
        settings: Where answers are kept, and for how long.
        now: Seconds since the epoch.

    Raises:
        SettingsError: the folder of kept answers cannot be used.
    """
    question = question_digest(options, settings) if options.reuse and settings.answers_dir is not None else None
    if question is None or settings.answers_dir is None:
        return 0
    since, total = now - settings.answers_days * DAY_S, 0
    with AnswerCache.opened(settings.answers_dir) as kept, open_read_only(journal.folder) as db:
        rows = iter(db.execute(_WAITING))
        while chunk := list(islice(rows, CHUNK)):
            found = []
            for seq, *marks in chunk:
                one = kept.find(question, _asset(*marks), since=since)
                if one is not None:
                    found.append(CachedRow(seq, one.asset, one.name, one.answer))
            if found:
                journal.submit(reuse(found)).result()
            total += len(found)
    return total


def find_planned_answers(
    settings: Settings, wanted: Sequence[tuple[int, tuple[int, str | None, str]]]
) -> list[CachedRow]:
    """The answers that a plan file counts on, however old they are by now: it was agreed to use them.

    Args:
        settings: Where answers are kept.
        wanted: (row, (asset, name, sha256 of the answer)) for each row.

    Raises:
        PlanChanged: one of them is no longer kept: to do the plan would cost more than it says.
    """
    if not wanted:
        return []
    if settings.answers_dir is None:
        raise _gone("No folder of kept answers is set")
    found = []
    with AnswerCache.opened(settings.answers_dir) as kept:
        for seq, (asset, name, sha256) in wanted:
            answer = kept.answer(sha256)
            if answer is None:
                raise _gone("An answer that it counts on is no longer kept")
            found.append(CachedRow(seq, asset, name, answer))
    return found


def _gone(why: str) -> PlanChanged:
    return PlanChanged(
        f"{why}, so the plan would cost more than it says.", hint="Plan again: lightmeter plan MANIFEST --save FILE"
    )


def cache_answers(out: Path, run_id: str, options: Options, settings: Settings, now: float) -> int:
    """Keep what the run in `out` was answered since this was last done, for later runs; returns how many answers.

    Answers with errors in them, and those that are no valid answer to the user's question, are not kept: another try
    may do better. What cannot be kept is a saving lost, and no
    reason for a run to fail: it is logged.
    """
    question = question_digest(options, settings)
    if settings.answers_dir is None or question is None:
        return 0
    try:
        with AnswerCache.opened(settings.answers_dir) as kept, open_read_only(out) as db:
            kept.forget(now - settings.answers_days * DAY_S)
            return _keep(kept, db, options.ask, (question, run_id))
    except SettingsError as error:
        _log.warning("%s The answers of this run are not kept for later ones.", error)
        return 0


def _keep(kept: AnswerCache, db: apsw.Connection, ask: Ask | None, under: tuple[str, str]) -> int:
    (question, run_id), total = under, 0
    settled = groupby(db.execute(_SETTLED, (kept.read_to(run_id),)), key=itemgetter(0))
    told = ((place, _told([row[1:] for row in rows], ask)) for place, rows in settled)
    while chunk := list(islice(told, CHUNK)):
        answers = [answer for _, answer in chunk if answer is not None]
        kept.keep(question, answers, run_id, chunk[-1][0])
        total += len(answers)
    return total


def _told(rows: Sequence[tuple[Any, ...]], ask: Ask | None) -> tuple[CachedAnswer, list[CachedAsset]] | None:
    """One answer with its assets, None where it is not worth keeping."""
    request_id, answered_at, packed = rows[0][:3]
    raw = decompress(packed)
    if answered_at is None or _has_errors(raw):
        return None
    answer = None if ask is None else decode_answer_lenient(raw)
    assets = [
        CachedAsset(_asset(*marks), asset, name)
        for _, _, _, asset, name, *marks in rows
        if _still_there(*marks) and (ask is None or answer is None or all_descriptions_valid(ask, answer, asset))
    ]
    return (CachedAnswer(hashlib.sha256(raw).hexdigest(), request_id, answered_at, packed), assets) if assets else None


def _has_errors(raw: bytes) -> bool:
    """Whether an answer is not strict JSON, has no results, or reports errors beside its assets."""
    results = WireAnswer(parse_object_strict(raw) or {}).results
    return not results or bool(results.get("errors"))


def _still_there(identity: str | None, path: str | None, content_sha256: str | None, facts: str | None) -> bool:
    """Whether a local file still has the content that it was planned with: else nobody knows which was sent."""
    del identity, facts
    if path is None:
        return True
    if content_sha256 is None:
        return False
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == content_sha256
    except OSError:
        return False


def _asset(identity: str | None, path: str | None, content_sha256: str | None, facts: str | None) -> AssetFingerprint:
    seen: dict[str, Any] = orjson.loads(facts) if facts else {}
    return AssetFingerprint(None if path else identity, content_sha256, seen.get("size_bytes"), seen.get("etag"))
