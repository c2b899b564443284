"""The class `AnswerCache`: paid answers in an SQLite file that several processes of a machine may use at a time.

The cache stores each answer once and unchanged. To find the answer about an asset (image or video), the caller gives a
digest of the service and the request's options, and what identifies the asset: its canonical URL, the hash of its
content, or both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.errors import SettingsError
from lightmeter.journal.commands.plan_rows import CachedAnswer
from lightmeter.journal.compression import decompress

FILE_NAME: Final = "answers-1.sqlite"
"""Name of the cache's file. The number is the version of its tables, so that each version has its own file."""

BUSY_TIMEOUT_MS: Final = 30_000
"""Maximum wait for a lock that another process holds, in milliseconds. A transaction may store hundreds of answers."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answers (
    answer_id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    request_id TEXT,
    answered_at REAL NOT NULL,
    raw BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS assets (
    question TEXT NOT NULL,            -- digest of the request's options and the service
    identity TEXT,                     -- canonical URL; NULL for local files
    content_sha256 TEXT,
    size_bytes INTEGER,
    etag TEXT,
    answer_id INTEGER NOT NULL REFERENCES answers,
    asset INTEGER NOT NULL,            -- position in the answer
    name TEXT,                         -- name in the answer
    answered_at REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS assets_once
    ON assets (question, coalesce(identity, ''), coalesce(content_sha256, ''));
CREATE INDEX IF NOT EXISTS assets_by_identity ON assets (question, identity) WHERE identity IS NOT NULL;
CREATE INDEX IF NOT EXISTS assets_by_content ON assets (question, content_sha256) WHERE content_sha256 IS NOT NULL;
CREATE INDEX IF NOT EXISTS assets_by_answer ON assets (answer_id);
CREATE INDEX IF NOT EXISTS assets_by_age ON assets (answered_at);
-- For each run, the id of the last transition in its journal that was scanned.
CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, read_to INTEGER NOT NULL) STRICT;
"""

_FIND_ASSET: Final = """
SELECT a.identity, a.content_sha256, a.size_bytes, a.etag, a.asset, a.name,
       w.sha256, w.request_id, w.answered_at, w.raw
FROM assets a JOIN answers w USING (answer_id) WHERE a.question = ? AND a.{column} = ? AND a.answered_at >= ?
ORDER BY a.answered_at DESC
"""


@dataclass(frozen=True, slots=True)
class AssetFingerprint:
    """The properties that identify an asset (image or video). A property is None if it is unknown.

    Attributes:
        identity: Canonical URL; None for a local file, because a path does not identify the content.
        content_sha256: SHA-256 of the asset's content, in hexadecimal.
        size_bytes: Size of the asset's content in bytes, as the server of the URL reports it.
        etag: HTTP entity tag (`ETag`) that the server of the URL reports; `Last-Modified` if it reports no tag.
    """

    identity: str | None
    content_sha256: str | None = None
    size_bytes: int | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class CachedAsset:
    """An image or video in an answer to be cached.

    Attributes:
        fingerprint: What identifies the image or video.
        asset: Position of the image or video in the answer, that is, in the JSON list `all.assets`, from 0.
        name: Name of the image or video in the answer; None if the answer does not name it.
    """

    fingerprint: AssetFingerprint
    asset: int
    name: str | None


def is_same_asset(cached: AssetFingerprint, current: AssetFingerprint) -> bool:
    """Whether two fingerprints belong to the same asset (image or video), as far as their known properties show.

    If both content hashes are known, only these are compared. Else the URLs must be equal, and the sizes and HTTP
    entity tags must not differ. A size or tag that only one fingerprint has is not compared.
    """
    if cached.content_sha256 is not None and current.content_sha256 is not None:
        return cached.content_sha256 == current.content_sha256
    if cached.identity is None or cached.identity != current.identity:
        return False
    pairs = ((cached.size_bytes, current.size_bytes), (cached.etag, current.etag))
    return not any(then is not None and now is not None and then != now for then, now in pairs)


class AnswerCache:
    """A cache of the service's answers about images and videos, in an SQLite file.

    Create an instance with `open`. Every method raises SettingsError if the file is damaged.
    """

    def __init__(self, connection: sqlite.Connection, path: Path) -> None:
        self._db = connection
        self._path = path

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[AnswerCache]:
        """Open the cache in `folder`, for the duration of a `with` block. Create it if it does not exist.

        Raises:
            SettingsError: The folder cannot be used, or the file in it is damaged.
        """
        path = folder / FILE_NAME
        with _errors_translated(path):
            folder.mkdir(parents=True, exist_ok=True)
            # A power cut may lose the last commits, but never an answer: the journals contain all of them.
            connection = sqlite.open_wal(path, synchronous="normal", busy_timeout_ms=BUSY_TIMEOUT_MS)
            try:
                with sqlite.write_transaction(connection):
                    connection.execute(_SCHEMA)
                yield cls(connection, path)
            finally:
                connection.close()

    def find(
        self, request_digest: str, asset: AssetFingerprint, *, since: float
    ) -> tuple[int, str | None, CachedAnswer] | None:
        """Return the newest undamaged answer about an asset, or None if the cache has no such answer.

        The result is (position of the asset in the answer, name of the asset in the answer or None, answer).

        Args:
            request_digest: Digest of the options of a request and the service, from `reuse.request_digest`.
            asset: What identifies the image or video.
            since: Time in seconds since the epoch. Older answers are not returned.

        Raises:
            SettingsError: The file is damaged.
        """
        with _errors_translated(self._path):
            for column, value in (("content_sha256", asset.content_sha256), ("identity", asset.identity)):
                if value is None:
                    continue
                for *properties, position, name, sha256, request_id, answered_at, raw in self._db.execute(
                    _FIND_ASSET.format(column=column), (request_digest, value, since)
                ):
                    if is_same_asset(AssetFingerprint(*properties), asset) and _is_intact(sha256, raw):
                        return position, name, CachedAnswer(sha256, request_id, answered_at, raw)
        return None

    def answer(self, sha256: str) -> CachedAnswer | None:
        """Return the answer whose uncompressed bytes have the hash `sha256`, whatever the answer's age.

        Return None if the answer is not cached or is damaged.
        """
        with _errors_translated(self._path):
            row = self._db.execute(
                "SELECT sha256, request_id, answered_at, raw FROM answers WHERE sha256 = ?", (sha256,)
            ).fetchone()
        return CachedAnswer(*row) if row and _is_intact(sha256, row[-1]) else None

    def last_scanned(self, run_id: str) -> int:
        """Return how far the journal of the run `run_id` was searched for answers to cache.

        The result is the id of the last journal record (change of a request's state) that was searched. It is the
        argument `scanned` of the latest call of `store` for the run; 0 without such a call.
        """
        with _errors_translated(self._path):
            row = self._db.execute("SELECT read_to FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return row[0] if row else 0

    def store(
        self,
        request_digest: str,
        answers: Iterable[tuple[CachedAnswer, Sequence[CachedAsset]]],
        run_id: str,
        scanned: int,
    ) -> None:
        """Store answers of a run, and how far the run's journal has been searched for answers, in one transaction.

        Args:
            request_digest: Digest of the options of the requests and the service, from `reuse.request_digest`.
            answers: Each answer with the images and videos in it.
            run_id: Id of the run.
            scanned: Id of the last record in the journal that was searched. A record is a change of a request's state.
        """
        with _errors_translated(self._path), self._db:
            for answer, assets in answers:
                self._db.execute(
                    "INSERT INTO answers (sha256, request_id, answered_at, raw) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT DO NOTHING",
                    astuple(answer),
                )
                ((answer_id,),) = self._db.execute("SELECT answer_id FROM answers WHERE sha256 = ?", (answer.sha256,))
                for asset in assets:
                    found_at = (answer_id, asset.asset, asset.name, answer.answered_at)
                    self._db.execute(
                        "INSERT OR REPLACE INTO assets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (request_digest, *astuple(asset.fingerprint), *found_at),
                    )
            self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (run_id, scanned))

    def remove_older(self, before: float) -> int:
        """Remove images and videos whose answer is older than `before`, and answers without any image or video left.

        `before` is a time in seconds since the epoch. Return the number of images and videos removed.
        """
        with _errors_translated(self._path), self._db:
            self._db.execute("DELETE FROM assets WHERE answered_at < ?", (before,))
            removed = self._db.changes()
            if removed:
                self._db.execute("DELETE FROM answers WHERE answer_id NOT IN (SELECT answer_id FROM assets)")
        return removed


@contextmanager
def _errors_translated(path: Path) -> Iterator[None]:
    """Convert SQLite errors and file errors in the `with` block to SettingsError. `path` is the cache's file."""
    try:
        yield
    except (sqlite.Error, OSError) as error:
        raise SettingsError(
            f"{path} cannot be used: {error}.",
            hint=f"Delete {path}: later answers are cached again. Or name another folder in LIGHTMETER_ANSWERS_DIR.",
        ) from error


def _is_intact(sha256: str, raw: bytes) -> bool:
    """Whether a cached answer is undamaged: `raw` can be decompressed, and the result has the hash `sha256`."""
    try:
        return hashlib.sha256(decompress(raw)).hexdigest() == sha256
    except Exception:  # noqa: BLE001 (a decompressor may raise anything on damaged bytes)
        return False
