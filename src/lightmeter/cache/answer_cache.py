"""Settled answers, kept for later runs in one SQLite file that many processes of a machine may read and write.

An answer is kept whole, as it came, once; each of its assets is found again by what was asked and what the asset is:
its canonical URL, or the hash of its content. What is kept too long, and what nothing points to, is removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.errors import SettingsError
from lightmeter.journal.compression import decompress
from lightmeter.journal.plan_rows import CachedAnswer

__all__ = ["FILE_NAME", "AnswerCache", "AssetFingerprint", "CacheHit", "CachedAsset", "is_same_asset"]

FILE_NAME: Final = "answers-1.sqlite"
"""Its number is that of the tables' form: another form is another file, and old answers are merely not found."""

BUSY_TIMEOUT_MS: Final = 30_000

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answers (
    answer_id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    request_id TEXT,
    answered_at REAL NOT NULL,
    raw BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS assets (
    question TEXT NOT NULL,            -- digest of what was asked, of whom
    identity TEXT,                     -- canonical URL; NULL for local files
    content_sha256 TEXT,
    size_bytes INTEGER,
    etag TEXT,
    answer_id INTEGER NOT NULL REFERENCES answers,
    asset INTEGER NOT NULL,            -- its position in the answer
    name TEXT,                         -- its name there
    answered_at REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS assets_once
    ON assets (question, coalesce(identity, ''), coalesce(content_sha256, ''));
CREATE INDEX IF NOT EXISTS assets_by_identity ON assets (question, identity) WHERE identity IS NOT NULL;
CREATE INDEX IF NOT EXISTS assets_by_content ON assets (question, content_sha256) WHERE content_sha256 IS NOT NULL;
CREATE INDEX IF NOT EXISTS assets_by_answer ON assets (answer_id);
CREATE INDEX IF NOT EXISTS assets_by_age ON assets (answered_at);
-- How far the journal of each run has been read: the last settlement that was looked at.
CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, read_to INTEGER NOT NULL) STRICT;
"""

_FIND: Final = """
SELECT a.identity, a.content_sha256, a.size_bytes, a.etag, a.asset, a.name,
       w.sha256, w.request_id, w.answered_at, w.raw
FROM assets a JOIN answers w USING (answer_id) WHERE a.question = ? AND a.{column} = ? AND a.answered_at >= ?
ORDER BY a.answered_at DESC
"""


@dataclass(frozen=True, slots=True)
class AssetFingerprint:
    """What is known of an asset; None for what is not.

    Attributes:
        identity: Canonical URL; None for a local file, whose path says nothing about its content.
        content_sha256: Of its content, in hexadecimal.
        size_bytes: Of its content, as its server says.
        etag: Its server's mark for this very content.
    """

    identity: str | None
    content_sha256: str | None = None
    size_bytes: int | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class CacheHit:
    """A kept answer, and which asset in it is wanted."""

    asset: int
    name: str | None
    answer: CachedAnswer


@dataclass(frozen=True, slots=True)
class CachedAsset:
    """An asset to be kept: what it is, and where it stands in its answer."""

    is_: AssetFingerprint
    asset: int
    name: str | None


def is_same_asset(kept: AssetFingerprint, seen: AssetFingerprint) -> bool:
    """Whether what was answered then is what is seen now, as far as anybody can know.

    The same content is the same asset, wherever it lies. The same URL is, unless something that is known of both then
    and now differs: content, size, or the server's mark.
    """
    if kept.content_sha256 is not None and seen.content_sha256 is not None:
        return kept.content_sha256 == seen.content_sha256
    if kept.identity is None or kept.identity != seen.identity:
        return False
    marks = ((kept.size_bytes, seen.size_bytes), (kept.etag, seen.etag))
    return not any(then is not None and now is not None and then != now for then, now in marks)


class AnswerCache:
    """The answers kept in a folder; made by `opened`."""

    def __init__(self, connection: sqlite.Connection) -> None:
        self._db = connection

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[AnswerCache]:
        """Open, or begin, the answers in a folder.

        Raises:
            SettingsError: the folder cannot be used, or what is in it cannot be read.
        """
        connection = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A power cut may lose the last commits. That costs a saving, never an answer: the journals have them all.
            connection = sqlite.open_wal(folder / FILE_NAME, synchronous="normal", busy_timeout_ms=BUSY_TIMEOUT_MS)
            with sqlite.write_transaction(connection):
                connection.execute(_SCHEMA)
            yield cls(connection)
        except (sqlite.Error, OSError) as error:
            raise _unusable(folder / FILE_NAME, error) from error
        finally:
            if connection is not None:
                connection.close()

    def find(self, question: str, seen: AssetFingerprint, *, since: float) -> CacheHit | None:
        """The newest answer to this question about this asset, answered at `since` (epoch seconds) or later.

        An answer whose bytes are not those that were kept is not found.

        Raises:
            SettingsError: the file is broken; so for all methods.
        """
        with self._usable():
            return self._find(question, seen, since)

    def _find(self, question: str, seen: AssetFingerprint, since: float) -> CacheHit | None:
        for column, value in (("content_sha256", seen.content_sha256), ("identity", seen.identity)):
            if value is None:
                continue
            for *marks, asset, name, sha256, request_id, answered_at, raw in self._db.execute(
                _FIND.format(column=column), (question, value, since)
            ):
                if is_same_asset(AssetFingerprint(*marks), seen) and _is_whole(sha256, raw):
                    return CacheHit(asset, name, CachedAnswer(sha256, request_id, answered_at, raw))
        return None

    def answer(self, sha256: str) -> CachedAnswer | None:
        """One answer, however old, by the SHA-256 of its bytes; None if it is no longer kept."""
        with self._usable():
            row = self._db.execute(
                "SELECT sha256, request_id, answered_at, raw FROM answers WHERE sha256 = ?", (sha256,)
            ).fetchone()
        return CachedAnswer(*row) if row and _is_whole(sha256, row[-1]) else None

    def read_to(self, run_id: str) -> int:
        """The last settlement of a run's journal that was looked at; 0 for none."""
        with self._usable():
            row = self._db.execute("SELECT read_to FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return row[0] if row else 0

    def keep(
        self, question: str, answers: Iterable[tuple[CachedAnswer, Sequence[CachedAsset]]], run_id: str, read_to: int
    ) -> None:
        """Keep answers and their assets, and remember how far the run's journal was read: all of it, or nothing."""
        with self._usable(), self._db:
            for answer, assets in answers:
                self._keep(question, answer, assets)
            self._db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (run_id, read_to))

    def _keep(self, question: str, answer: CachedAnswer, assets: Sequence[CachedAsset]) -> None:
        values = (answer.sha256, answer.request_id, answer.answered_at, answer.raw)
        self._db.execute(
            "INSERT INTO answers (sha256, request_id, answered_at, raw) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            values,
        )
        ((answer_id,),) = self._db.execute("SELECT answer_id FROM answers WHERE sha256 = ?", (answer.sha256,))
        for one in assets:
            is_ = one.is_
            marks = (is_.identity, is_.content_sha256, is_.size_bytes, is_.etag)
            self._db.execute(
                "INSERT OR REPLACE INTO assets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (question, *marks, answer_id, one.asset, one.name, answer.answered_at),
            )

    def forget(self, before: float) -> int:
        """Remove what was answered before `before` (epoch seconds); returns how many assets that were."""
        with self._usable(), self._db:
            self._db.execute("DELETE FROM assets WHERE answered_at < ?", (before,))
            forgotten = self._db.changes()
            if forgotten:
                self._db.execute("DELETE FROM answers WHERE answer_id NOT IN (SELECT answer_id FROM assets)")
        return forgotten

    @contextmanager
    def _usable(self) -> Iterator[None]:
        # Said here: further out it would pass for an error of the journal that is being read meanwhile.
        try:
            yield
        except sqlite.Error as error:
            raise _unusable(Path(self._db.filename), error) from error


def _unusable(path: Path, error: Exception) -> SettingsError:
    return SettingsError(
        f"{path} cannot be used: {error}.",
        hint=f"Delete {path}, and answers are kept anew; or name another folder in LIGHTMETER_ANSWERS_DIR.",
    )


def _is_whole(sha256: str, raw: bytes) -> bool:
    """Whether a kept answer is still what was kept."""
    try:
        return hashlib.sha256(decompress(raw)).hexdigest() == sha256
    except Exception:  # noqa: BLE001 (whatever a decompressor says of broken bytes)
        return False
