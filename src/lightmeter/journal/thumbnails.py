"""Thumbnails of the images and videos that pre-checks decoded, in one SQLite file of a bounded size, beside a journal.

The report and the gallery show the thumbnails later, without the network. Nothing depends on them: if the file is
missing, damaged or cannot be written, this is at most logged, and no error is raised.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

from lightmeter import sqlite
from lightmeter.atomic import atomic_replace

THUMBNAILS_NAME: Final = "thumbnails.sqlite"
"""Name of the file of thumbnails, in the folder of a run."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS thumbnails (
    id INTEGER PRIMARY KEY,            -- the oldest has the smallest
    content_sha256 TEXT NOT NULL UNIQUE,
    jpeg BLOB NOT NULL
) STRICT;
"""

_ROWS_AT_ONCE: Final = 256
_NOT_DAMAGED: Final = (sqlite.BusyError, sqlite.CantOpenError, sqlite.ReadOnlyError, sqlite.FullError)
"""Errors of SQLite after which the file is kept: they do not mean that it is damaged."""

_log: Final = logging.getLogger(__name__)


class ThumbnailStore:
    """A file of thumbnails for reports and galleries, open for writing by any thread. Use it as a context manager.

    The key of a thumbnail is the SHA-256 of the content of its image or video. If the file is damaged when it is
    opened, it is replaced by a new one. After an error while writing, no more thumbnails are stored, and a damaged file
    is removed.

    Args:
        path: The file; created if it is missing.
        max_bytes: Maximum size of the file. If it is exceeded, the oldest thumbnails are removed. With 0 nothing is
            stored.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._db: sqlite.Connection | None = None
        if max_bytes and self._open():
            self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._close()

    def add(self, thumbnails: Iterable[tuple[str, bytes]]) -> None:
        """Store thumbnails, as (SHA-256 of the content, JPEG); remove the oldest if the file exceeds `max_bytes`."""
        with self._lock:
            if self._db is None:
                return
            try:
                with sqlite.write_transaction(self._db):
                    self._db.executemany(
                        "INSERT OR REPLACE INTO thumbnails (content_sha256, jpeg) VALUES (?, ?)", thumbnails
                    )
                    _remove_oldest(self._db, self._max_bytes)
            except sqlite.Error as error:
                self._give_up(error)

    def _open(self) -> bool:
        """Open the thumbnail file. If it is damaged, remove it and return True; otherwise return False."""
        try:
            self._db = _open_for_writing(self._path)
        except sqlite.Error as error:
            return self._give_up(error)
        return False

    def _give_up(self, error: sqlite.Error) -> bool:
        """Close the file after an error, so that no more thumbnails are stored.

        If the error means that the file is damaged, remove the file and return True; otherwise return False.
        """
        _log.warning("Thumbnails are not kept in %s: %s", self._path, error)
        self._close()
        if isinstance(error, _NOT_DAMAGED):
            return False
        remove_thumbnails(self._path)
        return True

    def _close(self) -> None:
        if self._db is not None:
            with suppress(sqlite.Error):
                self._db.close()
            self._db = None


def _open_for_writing(path: Path) -> sqlite.Connection:
    with closing(sqlite.connect(path)) as db:
        db.pragma("auto_vacuum", "full")  # so that removed thumbnails make the file smaller; only set in an empty file
        db.execute(_SCHEMA)
    return sqlite.open_wal(path, synchronous="normal")


def _remove_oldest(db: sqlite.Connection, max_bytes: int) -> None:
    """Remove the oldest thumbnails until at most `max_bytes` bytes of the file are used."""
    while (excess := _used_bytes(db) - max_bytes) > 0:
        last = -1
        for row_id, size_bytes in db.execute("SELECT id, length(jpeg) FROM thumbnails ORDER BY id"):
            last = row_id
            excess -= size_bytes
            if excess <= 0:
                break
        db.execute("DELETE FROM thumbnails WHERE id <= ?", (last,))
        if not db.changes():
            return


def _used_bytes(db: sqlite.Connection) -> int:
    pages, free, page_bytes = (int(db.pragma(name)) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * page_bytes


def read_thumbnails(folder: Path, content_sha256s: Collection[str]) -> dict[str, bytes]:
    """Return the thumbnails of some images and videos, as SHA-256 of the content → JPEG.

    Contents without a thumbnail are left out.

    Args:
        folder: The folder of a run or a plan.
        content_sha256s: SHA-256 of the contents of the images and videos, in hexadecimal digits.
    """
    path = folder / THUMBNAILS_NAME
    if not path.exists():
        return {}
    for is_writable in (True, False):  # a reader needs to write beside the file, unless that is not possible
        try:
            with closing(sqlite.connect(path, create=False) if is_writable else sqlite.open_immutable(path)) as db:
                query = (
                    "SELECT content_sha256, jpeg FROM thumbnails "
                    "WHERE content_sha256 IN (SELECT value FROM json_each(?))"
                )
                rows = db.execute(query, (json.dumps(list(content_sha256s)),))
                return {key: jpeg for key, jpeg in rows if isinstance(jpeg, bytes)}
        except (sqlite.CantOpenError, sqlite.ReadOnlyError):
            continue
        except sqlite.Error as error:
            _log.info("The thumbnails in %s cannot be read: %s", path, error)
            break
    return {}


def add_thumbnails(source: Path, target: Path, max_bytes: int) -> None:
    """Copy the thumbnails in `source` to `target`, and remove the oldest ones if `target` becomes too large.

    Args:
        source: The file to read; if it is missing, nothing happens.
        target: The file to change; created if it is missing.
        max_bytes: Maximum size of `target`. With 0 nothing is copied.
    """
    if not source.exists() or not max_bytes:
        return
    try:
        with closing(sqlite.connect(source, create=False)) as db, ThumbnailStore(target, max_bytes) as store:
            rows = iter(db.execute("SELECT content_sha256, jpeg FROM thumbnails ORDER BY id"))
            while chunk := list(islice(rows, _ROWS_AT_ONCE)):
                store.add(chunk)
    except sqlite.Error as error:
        _log.warning("The thumbnails in %s cannot be read: %s", source, error)


def copy_thumbnails(source: Path, target: Path) -> None:
    """Replace the file of thumbnails `target` by a copy of `source`; if `source` is missing, delete `target`.

    No process may be writing to `source`.
    """
    try:
        if not source.exists():
            target.unlink(missing_ok=True)
            return
        with atomic_replace(target) as temporary:
            shutil.copyfile(source, temporary)
    except OSError as error:
        _log.warning("The thumbnails in %s cannot be copied: %s", source, error)


def remove_thumbnails(path: Path) -> None:
    """Remove a file of thumbnails, and the auxiliary files of SQLite beside it (such as its write-ahead log)."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()
