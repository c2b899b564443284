"""Reuses answers across runs: answers rows from the cache, and adds the answers of a run to the cache.

Answers are reused only if the settings name a folder for the cache, because images at a URL can change, and the user
decides how old an answer may be. The cache is read when a plan is made, so that the plan's price excludes cached rows.
Answers are added from the journal when a run ends. If the process is killed, the next start of the run adds the missing
answers.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from lightmeter import __version__, sqlite
from lightmeter.ask.question import Ask
from lightmeter.cache.answer_cache import AnswerCache, AssetFingerprint, CachedAsset
from lightmeter.client.base_url import canonical_base_url
from lightmeter.embedded_service import is_embedded
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.export.ask_answer_check import all_descriptions_valid
from lightmeter.facts.answer_fields import AnswerFields
from lightmeter.facts.lenient_decode import decode_answer_lenient
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.journal.commands.plan_rows import CachedAnswer, CachedRow, apply_cached_rows
from lightmeter.journal.compression import decompress
from lightmeter.journal.queries.items import AssetMarks, pending_asset_marks
from lightmeter.journal.queries.submissions import SettledAsset, settled_assets
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.manifest.tar_members import content_sha256
from lightmeter.options import REQUEST_OPTIONS, Options
from lightmeter.settings import Settings

DAY_S: Final = 86_400.0
"""Seconds of a day."""

CHUNK: Final = 512
"""Maximum number of rows or answers that are written in one commit."""

_READERS: Final = 8
"""Number of threads that read files, which may be in tars of a remote store."""

_AssetWithPath: TypeAlias = tuple[str | None, CachedAsset]
"""An image or video, with the `path` of its item: a local file or a file in a tar; None for a URL."""

_log: Final = logging.getLogger(__name__)


def request_digest(options: Options, settings: Settings) -> str | None:
    """Return a digest of the service and the options of a request.

    Two requests with the same digest would get equal answers about an asset. For the embedded service, the digest
    includes the version of lightmeter, because the models depend on the version. Return None if neither the options
    nor the embedded service fix the back ends, because the settings of the account then choose them.
    """
    if is_embedded(options, settings):
        service = f"embedded {__version__}"
    elif options.backends:
        service = canonical_base_url(options.base_url or settings.base_url or "")
    else:
        return None
    request = {name: getattr(options, name) for name in REQUEST_OPTIONS if name != "ask"}
    request |= {
        "prompt": options.sent_prompt,
        "features": sorted(options.features),
        "backends": sorted(options.backends),
        "service": service,
    }
    return hashlib.sha256(orjson.dumps(request, option=orjson.OPT_SORT_KEYS)).hexdigest()


def reuse_answers(journal: Journal, options: Options, settings: Settings, now: float) -> int:
    """Answer pending rows of a plan with cached answers of earlier runs, and return the number of rows answered.

    The answer about a local file is found only by the hash of the file's content, so only if a pre-check has read the
    file.

    Args:
        journal: The plan's journal, open for writing.
        options: The run's options.
        settings: Settings with the cache's folder and the maximum age of an answer.
        now: The present time, in seconds since the epoch.

    Raises:
        SettingsError: The cache's folder cannot be used.
    """
    total = 0
    with open_read_only(journal.folder) as db:
        for answered in find_cached_rows(db, options, settings, now):
            journal.submit(apply_cached_rows(answered)).result()
            total += len(answered)
    return total


def find_cached_rows(
    db: sqlite.Connection, options: Options, settings: Settings, now: float
) -> Iterator[list[CachedRow]]:
    """Yield the pending rows of a journal for which the cache has an answer, each with its answer.

    The rows come in lists of at most `CHUNK` rows. Yield nothing if the options or the settings do not allow the reuse
    of answers.

    Args:
        db: The journal.
        options: The run's options.
        settings: Settings with the cache's folder and the maximum age of an answer.
        now: The present time, in seconds since the epoch.

    Raises:
        SettingsError: The cache's folder cannot be used.
    """
    digest = request_digest(options, settings) if options.reuse and settings.answers_dir is not None else None
    if digest is None or settings.answers_dir is None:
        return
    since = now - settings.answers_days * DAY_S
    with AnswerCache.open(settings.answers_dir) as cache:
        rows = pending_asset_marks(db)
        while chunk := list(islice(rows, CHUNK)):
            found = [(seq, cache.find(digest, _asset(marks), since=since)) for seq, marks in chunk]
            if answered := [CachedRow(seq, *hit) for seq, hit in found if hit is not None]:
                yield answered


def find_planned_answers(
    settings: Settings, planned_answers: Sequence[tuple[int, tuple[int, str | None, str]]]
) -> list[CachedRow]:
    """Return the cached answers to which a saved plan refers, however old the answers are.

    Args:
        settings: Settings with the cache's folder.
        planned_answers: A pair for each row: the row's number in the journal (`seq`, from 0), and a tuple that refers
            to the answer. The tuple has the position of the row's image or video in the answer (from 0), the name of
            the image or video in the answer (or None), and the SHA-256 of the answer.

    Raises:
        PlanChanged: An answer is no longer cached, so that the run would cost more than the plan says.
    """
    if not planned_answers:
        return []
    if settings.answers_dir is None:
        raise _plan_changed("No folder for cached answers is set")
    rows = []
    with AnswerCache.open(settings.answers_dir) as cache:
        for seq, (asset, name, sha256) in planned_answers:
            answer = cache.answer(sha256)
            if answer is None:
                raise _plan_changed("An answer that it counts on is no longer cached")
            rows.append(CachedRow(seq, asset, name, answer))
    return rows


def _plan_changed(why: str) -> PlanChanged:
    return PlanChanged(
        f"{why}, so the plan would cost more than it says.", hint="Plan again: lightmeter plan MANIFEST --save FILE"
    )


def cache_answers(out: Path, run_id: str, options: Options, settings: Settings, now: float) -> int:
    """Add the answers of a run that are not cached yet to the cache, and return the number of answers added.

    Also remove answers from the cache that are too old. Answers with errors and invalid answers to the user's question
    are not cached, because a later request may succeed. If the cache cannot be written, log this, but do not raise an
    error, so that the run does not fail.

    Args:
        out: The run's output folder.
        run_id: Id of the run.
        options: The run's options.
        settings: Settings with the cache's folder and the maximum age of an answer.
        now: The present time, in seconds since the epoch.
    """
    digest = request_digest(options, settings)
    if settings.answers_dir is None or digest is None:
        return 0
    try:
        with AnswerCache.open(settings.answers_dir) as cache, open_read_only(out) as db:
            cache.remove_older(now - settings.answers_days * DAY_S)
            answers = groupby(settled_assets(db, cache.last_scanned(run_id)), key=attrgetter("transition_id"))
            scanned = ((transition_id, _to_cached(list(rows), options.ask)) for transition_id, rows in answers)
            total = 0
            while chunk := list(islice(scanned, CHUNK)):
                cacheable = _without_changed_files([answer for _, answer in chunk if answer is not None])
                cache.store(digest, cacheable, run_id, chunk[-1][0])
                total += len(cacheable)
            return total
    except SettingsError as error:
        _log.warning("%s The answers of this run are not cached for later runs.", error)
        return 0


def _to_cached(rows: Sequence[SettledAsset], ask: Ask | None) -> tuple[CachedAnswer, list[_AssetWithPath]] | None:
    """Return the answer to one request, with the images and videos in it, in the form in which it is cached.

    Return None if the answer has errors. Images and videos without a valid answer to the user's question are left out,
    and so are local files without a known hash.

    Args:
        rows: The images and videos of the request.
        ask: The user's question; None if the run has no question.
    """
    _, request_id, answered_at, compressed, *_ = rows[0]
    raw = decompress(compressed)
    if answered_at is None or has_errors(raw):
        return None
    answer = None if ask is None else decode_answer_lenient(raw)
    assets = [
        (row.marks.path, CachedAsset(_asset(row.marks), row.asset, row.name))
        for row in rows
        if (row.marks.path is None or row.marks.content_sha256 is not None)
        and (ask is None or answer is None or all_descriptions_valid(ask, answer, row.asset))
    ]
    return CachedAnswer(hashlib.sha256(raw).hexdigest(), request_id, answered_at, compressed), assets


def has_errors(raw: bytes) -> bool:
    """Whether an answer (`raw`, uncompressed) holds no JSON object, has no results, or lists errors in its results."""
    results = AnswerFields(parse_object_lenient(raw) or {}).results
    return not results or bool(results.get("errors"))


def _without_changed_files(
    answers: Sequence[tuple[CachedAnswer, list[_AssetWithPath]]],
) -> list[tuple[CachedAnswer, list[CachedAsset]]]:
    """Return answers without those images and videos whose local file no longer has the content that was planned.

    Answers of which nothing is left are left out. Each file is read once, also if many frames of one video were sent.
    """
    paths = list({path for _, assets in answers for path, _ in assets if path is not None})
    with ThreadPoolExecutor(_READERS) as pool:
        hashes = dict(zip(paths, pool.map(_file_hash, paths), strict=True))

    def is_unchanged(path: str | None, asset: CachedAsset) -> bool:
        planned, _, _ = (asset.fingerprint.content_sha256 or "").partition("#")  # a frame: its video's hash and "#…"
        return path is None or hashes[path] == planned

    remaining = [(answer, [asset for path, asset in assets if is_unchanged(path, asset)]) for answer, assets in answers]
    return [(answer, assets) for answer, assets in remaining if assets]


def _file_hash(path: str) -> str | None:
    try:
        return content_sha256(path)
    except OSError:
        return None


def _asset(marks: AssetMarks) -> AssetFingerprint:
    reach: dict[str, Any] = orjson.loads(marks.reach_facts) if marks.reach_facts else {}
    identity = None if marks.path else marks.identity
    return AssetFingerprint(identity, marks.content_sha256, reach.get("size_bytes"), reach.get("etag"))
