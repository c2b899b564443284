"""How far the journal of a run has come, kept outside of the run's folder.

A journal that lost its log, was restored from a backup or was copied cannot know that: it would pay again for what it
no longer holds. So each run has a small file of its own in a folder of this machine. It is rewritten after each commit,
which is before a request that was committed may leave.

These writes wait for no disk: the system keeps them when the process is killed. They are flushed once in `FLUSH_EVERY`
requests and at the end. After a power cut the mark may be behind the journal, whose commits are flushed; it is never
ahead of it, so a mark that is ahead always means that the journal went back.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.atomic import fsync_folder
from lightmeter.journal.commands import apply_event
from lightmeter.journal.state import Event, State

__all__ = [
    "FLUSH_EVERY",
    "JournalPosition",
    "Watermark",
    "WatermarkRecord",
    "position_of",
    "watermark_path",
    "write_off",
]

FLUSH_EVERY: Final = 256
"""Requests after which the mark is flushed to disk."""

_POSITION_BYTES: Final = 256
"""The part of the file that is rewritten: less than a sector, so that a write of it is whole or not at all."""

_log: Final = logging.getLogger(__name__)

_POSITION: Final = """
SELECT (SELECT coalesce(max(rowid), 0) FROM transitions), (SELECT coalesce(max(submission_id), 0) FROM submissions),
       paid + held FROM money
"""


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """How far a journal has come; none of it ever gets less in the life of a run, but `credits`.

    Attributes:
        steps: Transitions of submissions.
        requests: The last submission's id.
        credits: Paid and held.
    """

    steps: int
    requests: int
    credits: int


@dataclass(frozen=True, slots=True)
class WatermarkRecord:
    """What is known of a run from outside of its folder.

    Attributes:
        folder: Where the run was when it was last started on this machine.
        position: How far it had come.
        checked: Whether a start of the run has ended well since the file was made: its journal was the latest state.
    """

    folder: Path
    position: JournalPosition
    checked: bool


def position_of(db: sqlite.Connection) -> JournalPosition:
    """How far a journal has come."""
    ((steps, requests, credits_),) = db.execute(_POSITION)
    return JournalPosition(steps, requests, credits_)


def watermark_path(state_dir: Path, run_id: str) -> Path:
    """The file of a run in the folder in which a machine keeps what must not be lost."""
    return state_dir / "journals" / f"{hashlib.sha256(run_id.encode()).hexdigest()[:32]}.json"


class Watermark:
    """The file of one run. From when it is opened until `begin` or `close`, other processes that open it wait.

    Attributes:
        known: What it said when it was opened; None if it was not there, or cannot be read.

    Raises:
        OSError: it cannot be made or read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.known: Final = _read(os.pread(self._file, os.fstat(self._file).st_size, 0))
        except BaseException:
            self.close()
            raise
        self._said: JournalPosition | None = None
        self._checked = False
        self._flushed_at = 0

    def begin(self, run_id: str, folder: Path, position: JournalPosition, *, checked: bool) -> None:
        """Say where the run is and how far it has come, on disk, and let other processes look.

        Args:
            run_id: The run.
            folder: Where it is.
            position: How far its journal has come.
            checked: As in `WatermarkRecord`.

        Raises:
            OSError: it cannot be written.
        """
        if self._file is None:
            raise ValueError("The watermark is closed.")
        place = json.dumps({"run_id": run_id, "folder": str(folder.resolve())}).encode()
        os.pwrite(self._file, _line(position, checked=checked) + place + b"\n", 0)
        os.ftruncate(self._file, _POSITION_BYTES + len(place) + 1)
        os.fsync(self._file)
        fsync_folder(self._path.parent)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._said, self._checked, self._flushed_at = position, checked, position.requests

    def advance(self, db: sqlite.Connection) -> None:
        """Say how far the journal has come now; to be called after each of its commits.

        What cannot be written is logged once, and no reason for a run to stop.
        """
        if self._file is None or (now := position_of(db)) == self._said:
            return
        try:
            os.pwrite(self._file, _line(now, checked=self._checked), 0)
            if now.requests - self._flushed_at >= FLUSH_EVERY:
                os.fdatasync(self._file)
                self._flushed_at = now.requests
        except OSError as error:
            _log.warning("%s cannot be written: %s. It no longer follows the journal.", self._path, error)
            self.close()
        self._said = now

    def close(self, *, checked: bool = False) -> None:
        """Flush it and let go of it; idempotent. `checked` says that this start of the run has ended well."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            if checked and self._said is not None:
                os.pwrite(file, _line(self._said, checked=True), 0)
            os.fsync(file)
        except OSError as error:
            _log.warning("%s cannot be written: %s.", self._path, error)
        finally:
            os.close(file)


def _line(position: JournalPosition, *, checked: bool) -> bytes:
    return json.dumps({**asdict(position), "checked": checked}).encode().ljust(_POSITION_BYTES - 1) + b"\n"


def _read(content: bytes) -> WatermarkRecord | None:
    try:
        position, place = (json.loads(line) for line in content.splitlines())
        numbers = JournalPosition(int(position["steps"]), int(position["requests"]), int(position["credits"]))
        return WatermarkRecord(Path(place["folder"]), numbers, bool(position["checked"]))
    except (ValueError, KeyError, TypeError):  # new, or what a power cut left of it
        return None


def write_off(credits_: int, requests: int, why: str, at: float) -> Callable[[sqlite.Connection], None]:
    """Hold credits for good that were spent on requests which the journal does not know: the budget holds with them.

    They stand in one submission without rows, which took every step of a lost one that is sent again.

    Args:
        credits_: What was spent, at most.
        requests: How many requests that were.
        why: A sentence to read.
        at: Seconds since the epoch.
    """

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "INSERT INTO submissions (state, hold, assets, sent_at, attempts, error) VALUES (?, ?, 0, ?, ?, ?)",
            (State.PLANNED, credits_, at, requests, why),
        )
        submission_id = db.last_insert_rowid()
        for event in (Event.HOLD, Event.SEND, Event.LOSE, Event.GIVE_UP, Event.PAY_AGAIN):
            apply_event(db, submission_id, event, at, why)

    return change
