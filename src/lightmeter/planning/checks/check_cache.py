"""Stores the pre-check results of a manifest in a SQLite file, so that later checks, plans and the run reuse them.

The file is in the cache folder. A manifest has one file for each set of options and settings that affect the checks.
Once a new run has the results of all rows in its own journal, the file is removed, so that the next run sees changed
content. If the file is gone, all rows are checked again.

The key of a result is the row's URL, or the path, size and modification time of the row's file. The result is not
stored if the row has an error, or if its URL could not be read from here: such a row is checked again, because its file
or host may have been repaired.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final, Self

import orjson

from lightmeter import __version__, sqlite
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, remove_thumbnails
from lightmeter.manifest.item import Item
from lightmeter.manifest.tar_members import size_and_mtime
from lightmeter.media.video.distinct_frames import DistinctFrame
from lightmeter.options import Options
from lightmeter.prechecks.finding import CheckResult, Finding
from lightmeter.settings import Settings

MAX_AGE_S: Final = 3 * 86_400.0
"""Age in seconds after which a stored result is no longer used, because the content of a URL may have changed."""

MAX_BYTES: Final = 8 * 1024**3
"""Size limit of one file of results, which takes about 2 KB for a row.

It also limits all files together: when a file is opened, the oldest files are deleted until the rest is small enough.
"""

_CHECKS_VERSION: Final = 2
"""Raised whenever the checks find something else in the same content, for example because it is decoded otherwise."""

_PAGE_BYTES: Final = 4096

_log: Final = logging.getLogger(__name__)


class CheckCache:
    """An open file with stored pre-check results of a manifest. `open_check_cache` opens it.

    Attributes:
        thumbnails_path: Path of the file for the thumbnails of the checked rows. It is deleted with the results.
    """

    def __init__(self, path: Path, lock: int, db: sqlite.Connection) -> None:
        self.thumbnails_path = _thumbnails_path(path)
        self._path = path
        self._lock = lock
        self._is_full = False
        self._db = db
        self._thread_lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._thread_lock:
            self._db.close()
            os.close(self._lock)

    def find(self, items: Sequence[Item]) -> list[tuple[bytes, CheckResult | None]]:
        """Return (key, result) for each row: its key in this file, and its stored result, or None if there is none."""
        keys = [result_key(item) for item in items]
        places = ",".join("?" * len(keys))
        query = f"SELECT key, result FROM checks WHERE key IN ({places})"  # noqa: S608 (question marks only)
        with self._thread_lock:
            found: dict[Any, Any] = dict(self._db.execute(query, keys))
        return [(key, result_from_json(found[key]) if key in found else None) for key in keys]

    def add(self, results: Sequence[tuple[bytes, CheckResult]]) -> None:
        """Store (key, result) pairs, with the keys that `find` returned.

        Pairs whose check found an error, or whose URL this machine could not read, are not stored.

        If the file cannot be written, for example because it has reached `MAX_BYTES`, log a warning. Later calls then
        store nothing.
        """
        if self._is_full:
            return
        now = time.time()
        rows = [(key, now, result_to_json(result)) for key, result in results if is_sound(result)]
        try:
            with self._thread_lock, sqlite.write_transaction(self._db):
                self._db.executemany("INSERT OR REPLACE INTO checks VALUES (?, ?, ?)", rows)
        except sqlite.Error as error:
            self._is_full = True
            _log.warning("The checks of further rows cannot be kept in %s: %s", self._path, error)


def open_check_cache(manifest: str, options: Options, settings: Settings) -> CheckCache | None:
    """Open or create the file with pre-check results of a manifest.

    Before that, delete all result files, of any manifest, that were last changed more than 3 days ago. Then delete the
    oldest files until all together are no larger than `MAX_BYTES`.

    Args:
        manifest: Absolute path or URI of the manifest. For rows in memory, the name of their type, such as `DataFrame`;
            for standard input, `-`.
        options: The options of the run.
        settings: The user's settings, such as the cache folder.

    Returns:
        The open file; None if the folder cannot be written, or another process checks the same manifest.
    """
    path = check_cache_path(manifest, options, settings)
    lock = -1
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old(path)
        lock = _lock(path)
        return CheckCache(path, lock, _open(path))
    except (OSError, sqlite.Error) as error:
        if lock >= 0:
            os.close(lock)
        _log.info("The checks of this manifest are not kept: %s", error)
        return None


def remove_check_cache(manifest: str, options: Options, settings: Settings) -> None:
    """Delete the file with pre-check results of a manifest, if there is one and no process uses it.

    Args:
        manifest: Absolute path or URI of the manifest. For rows in memory, the name of their type, such as `DataFrame`;
            for standard input, `-`.
        options: The options of the run.
        settings: The user's settings, such as the cache folder.
    """
    _remove_unused(check_cache_path(manifest, options, settings))


def check_cache_path(manifest: str, options: Options, settings: Settings) -> Path:
    """Return the path of the file with pre-check results of a manifest.

    The path depends on the options and settings that affect the checks, so that their results are not mixed up.

    Args:
        manifest: Absolute path or URI of the manifest. For rows in memory, the name of their type, such as `DataFrame`;
            for standard input, `-`.
        options: The options of the run.
        settings: The user's settings, such as the cache folder.
    """
    relevant = (
        *(manifest, __version__, _CHECKS_VERSION, [field.name for field in fields(CheckResult)]),
        *(options.capture_interval, options.max_frames, options.video, options.max_distinct_frames),
        *(settings.max_image_bytes, settings.robots, settings.robots_txt, settings.quality),
    )
    return settings.cache_dir / "checks" / f"{hashlib.sha256(repr(relevant).encode()).hexdigest()[:32]}.sqlite"


def _thumbnails_path(path: Path) -> Path:
    """Return the path of the file with thumbnails that belongs to `path`, a file of pre-check results."""
    return path.with_name(f"{path.stem}-{THUMBNAILS_NAME}")


def _lock(path: Path) -> int:
    """Lock a file of pre-check results against other processes, and return the file descriptor that holds the lock.

    Raises:
        OSError: another process has the lock; it is not waited for.
    """
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _open(path: Path) -> sqlite.Connection:
    db = sqlite.open_wal(path, synchronous="normal")
    db.pragma("max_page_count", MAX_BYTES // _PAGE_BYTES)
    db.execute("CREATE TABLE IF NOT EXISTS checks (key BLOB PRIMARY KEY, at REAL, result BLOB) WITHOUT ROWID")
    db.execute("DELETE FROM checks WHERE at NOT BETWEEN ? AND ?", (time.time() - MAX_AGE_S, time.time()))
    return db


def _remove_old(opened: Path) -> None:
    """Delete old files of pre-check results from the folder of the file `opened`.

    Delete all files more than 3 days old. Then delete the oldest files, but not `opened`, until all together are no
    larger than `MAX_BYTES`. Files that another process uses stay.
    """
    stats = {path: path.stat() for path in opened.parent.glob("*.sqlite") if not path.name.endswith(THUMBNAILS_NAME)}
    size_bytes = 0
    for path, stat in sorted(stats.items(), key=lambda entry: -entry[1].st_mtime):
        size_bytes += stat.st_size
        if time.time() - stat.st_mtime > MAX_AGE_S or (size_bytes > MAX_BYTES and path != opened):
            _remove_unused(path)


def _remove_unused(path: Path) -> None:
    """Delete a file of pre-check results, unless another process uses it."""
    with suppress(OSError):
        if not path.exists():
            return
        lock = _lock(path)
        try:
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            remove_thumbnails(_thumbnails_path(path))
            path.with_suffix(".lock").unlink(missing_ok=True)
        finally:
            os.close(lock)


def result_key(item: Item) -> bytes:
    """Return the key of a row's pre-check result: a hash of its URL, or of its file's path, size and modification time.

    Only the hash of the URL is stored, because the URL may hold a secret token.
    """
    parts: tuple[object, ...] = (item.kind, item.url)
    if item.path is not None:
        parts = (item.kind, item.path)
        with suppress(OSError, ValueError):
            parts = (*parts, *size_and_mtime(item.path))
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def is_sound(result: CheckResult) -> bool:
    """Return whether a later check may use this result: the row has no error, and its URL could be read."""
    unreached = any(found.check == "reach" and found.severity == "warning" for found in result.findings)
    return result.fatal is None and not unreached


def result_to_json(result: CheckResult) -> bytes:
    """Return a pre-check result as JSON, without the thumbnail, which is stored in another file."""
    return orjson.dumps({**asdict(replace(result, thumbnail=None)), "fingerprint": (result.fingerprint or b"").hex()})


def result_from_json(text: bytes) -> CheckResult:
    """Return the pre-check result that `result_to_json` wrote as the JSON `text`."""
    fields = orjson.loads(text)
    fields["findings"] = tuple(Finding(**found) for found in fields["findings"])
    fields["fingerprint"] = bytes.fromhex(fields.get("fingerprint", "")) or None
    fields["frames"] = tuple(DistinctFrame(**frame) for frame in fields.get("frames", ()))
    return CheckResult(**fields)
