"""Results of the pre-checks of an unfinished plan, in a SQLite file: a plan that was killed continues from them.

The file is in the cache folder, one for each manifest and each set of options that matter for checks. It is removed
when the plan is complete. A result is found by the URL, or by the path, size and time of change of a file. Only results
of rows without an error are kept, so that a repaired file or host is seen. Without this file, rows are checked again.
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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Self

import orjson

from lightmeter import sqlite
from lightmeter.manifest.item import Item
from lightmeter.media.distinct_frames import DistinctFrame
from lightmeter.options import Options
from lightmeter.prechecks.finding import CheckResult, Finding

MAX_AGE_S: Final = 3 * 86_400.0
"""Age after which a result is not used: the content of a URL may change."""

_log: Final = logging.getLogger(__name__)


class KeptChecks:
    """A file with results of the pre-checks of an unfinished plan. `open_kept_checks` opens it."""

    def __init__(self, path: Path, lock: int, db: sqlite.Connection) -> None:
        self._path = path
        self._lock = lock
        self._db = db
        self._thread_lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._thread_lock:
            self._db.close()
            os.close(self._lock)

    def find(self, items: Sequence[Item]) -> list[tuple[bytes, CheckResult | None]]:
        """Return for each row of the manifest the key of its pre-check result in this file, and the result or None."""
        keys = [_key(item) for item in items]
        places = ",".join("?" * len(keys))
        query = f"SELECT key, result FROM checks WHERE key IN ({places})"  # noqa: S608 (question marks only)
        with self._thread_lock:
            found: dict[Any, Any] = dict(self._db.execute(query, keys))
        return [(key, _to_result(found[key]) if key in found else None) for key in keys]

    def add(self, results: Sequence[tuple[bytes, CheckResult]]) -> None:
        """Store pre-check results (with the keys from `find`) of rows without an error; log an error of the disk."""
        now = time.time()
        rows = [(key, now, _to_json(result)) for key, result in results if _is_sound(result)]
        try:
            with self._thread_lock, sqlite.write_transaction(self._db):
                self._db.executemany("INSERT OR REPLACE INTO checks VALUES (?, ?, ?)", rows)
        except sqlite.Error as error:
            _log.warning("The checks of %d rows cannot be kept in %s: %s", len(rows), self._path, error)

    def remove(self) -> None:
        """Delete the file with the pre-check results; call it when the plan is complete."""
        _remove(self._path)


def open_kept_checks(folder: Path, manifest: str, options: Options) -> KeptChecks | None:
    """Open the file with pre-check results of an unfinished plan, or make an empty one; delete files older than 3 days.

    Args:
        folder: The cache folder.
        manifest: Location of the manifest, or its name if it has none.
        options: The options of the run.

    Returns:
        The open file; None if the folder cannot be written, or another process plans the same manifest.
    """
    choices = (options.capture_interval, options.max_frames, options.video, options.max_distinct_frames)
    digest = hashlib.sha256(repr((manifest, *choices)).encode()).hexdigest()
    path = folder / "unfinished-plans" / f"{digest[:32]}.sqlite"
    lock = -1
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old(path.parent)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return KeptChecks(path, lock, _open(path))
    except (OSError, sqlite.Error) as error:
        if lock >= 0:
            os.close(lock)
        _log.info("The checks of this plan are not kept: %s", error)
        return None


def _open(path: Path) -> sqlite.Connection:
    db = sqlite.open_wal(path, synchronous="normal")
    db.execute("CREATE TABLE IF NOT EXISTS checks (key BLOB PRIMARY KEY, at REAL, result BLOB) WITHOUT ROWID")
    db.execute("DELETE FROM checks WHERE at NOT BETWEEN ? AND ?", (time.time() - MAX_AGE_S, time.time()))
    return db


def _remove_old(folder: Path) -> None:
    for path in folder.glob("*.sqlite"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > MAX_AGE_S:
                _remove(path)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)


def _key(item: Item) -> bytes:
    """Return the key of a row's pre-check result: a hash, because a URL may hold a secret token."""
    parts: tuple[object, ...] = (item.kind, item.url)
    if item.path is not None:
        parts = (item.kind, item.path)
        with suppress(OSError, ValueError):
            stat = Path(item.path).stat()
            parts = (*parts, stat.st_size, stat.st_mtime_ns)
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _is_sound(result: CheckResult) -> bool:
    unreached = any(found.check == "reach" and found.severity == "warning" for found in result.findings)
    return result.fatal is None and not unreached


def _to_json(result: CheckResult) -> bytes:
    """Return a result as JSON, without the thumbnail, which would take more room than all else."""
    return orjson.dumps(asdict(replace(result, thumbnail=None)))


def _to_result(text: bytes) -> CheckResult:
    fields = orjson.loads(text)
    findings = tuple(Finding(**found) for found in fields["findings"])
    frames = tuple(DistinctFrame(**frame) for frame in fields.get("frames", ()))
    return CheckResult(**{**fields, "findings": findings, "frames": frames})
