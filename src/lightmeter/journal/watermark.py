"""The watermark of a run: a small file outside the run's folder that records how far the run's journal has come.

A journal may be an old state: a backup, a copy, or a file without its write-ahead log. The journal itself does not show
that it is old. A run that continued it would pay again for requests that the journal lacks. So the watermark is
rewritten after each commit, before any request in that commit is sent.

The watermark is flushed to disk once in `FLUSH_EVERY` requests and at the end, so after a power cut it may be behind
the journal; this does no harm. If the watermark is ahead of the journal, the journal is an old state.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.atomic import fsync_folder
from lightmeter.journal.commands.submissions import apply_event
from lightmeter.journal.submission_states import Event, State

FLUSH_EVERY: Final = 256
"""Number of requests between two flushes of the watermark to disk. The last write of a run is flushed too."""

_POSITION_BYTES: Final = 256
"""Size of the part of the file that is rewritten after each commit, in bytes.

It is smaller than a disk sector, so that a write is atomic.
"""

_log: Final = logging.getLogger(__name__)

_POSITION: Final = """
SELECT (SELECT coalesce(max(rowid), 0) FROM transitions), (SELECT coalesce(max(submission_id), 0) FROM submissions),
       paid + held FROM money
"""


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """How much a run's journal records. The position tells which of two copies of a journal is older.

    `steps` and `requests` never decrease with time; `credits` can.

    Attributes:
        steps: Number of recorded changes of state of submissions.
        requests: Id of the newest submission.
        credits: Credits paid plus credits reserved for requests.
    """

    steps: int
    requests: int
    credits: int


@dataclass(frozen=True, slots=True)
class WatermarkRecord:
    """The content of a watermark file. It shows whether a run's journal was replaced by an older copy.

    Attributes:
        folder: Folder of the run when it was last started on this machine.
        position: How many requests and changes of their states the run's journal contained at the last write.
        checked: Whether that journal was known to be the latest one of the run, or the user had accepted it as the
            latest.
    """

    folder: Path
    position: JournalPosition
    checked: bool


def read_position(db: sqlite.Connection) -> JournalPosition:
    """Return how many requests and state changes a journal records, and how many credits are paid or reserved in it."""
    return JournalPosition(*db.execute(_POSITION).get)


def watermark_path(state_dir: Path, run_id: str) -> Path:
    """Return the path of a run's watermark file in `state_dir`.

    The file shows whether the run's journal is an old copy.
    """
    return state_dir / "journals" / f"{hashlib.sha256(run_id.encode()).hexdigest()[:32]}.json"


class Watermark:
    """A file outside of the run's folder that records how many requests and changes the run's journal contains.

    A journal that contains less than the file says is an old copy. Another process that opens the file waits until
    this process calls `begin` or `close`.

    Attributes:
        known: Content of the file when it was opened; None if it was missing or unreadable.

    Raises:
        OSError: the file cannot be created or read.
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
        self._written: JournalPosition | None = None
        self._checked = False
        self._flushed_at = 0

    def begin(self, run_id: str, folder: Path, position: JournalPosition, *, checked: bool) -> None:
        """Record the run, its folder and the position of its journal in the file.

        Then unlock the file, which is locked since it was opened: other processes can open it now.

        Args:
            run_id: The run.
            folder: The run's folder.
            position: How many requests, state changes of requests and credits the run's journal records now.
            checked: Whether the journal is known to be the latest one of the run, or the user accepts it as the latest.
            This is only recorded, for the next process that opens the file.

        Raises:
            OSError: the file cannot be written.
        """
        if self._file is None:
            raise ValueError("The watermark is closed.")
        location = json.dumps({"run_id": run_id, "folder": str(folder.resolve())}).encode()
        os.pwrite(self._file, _position_line(position, checked=checked) + location + b"\n", 0)
        os.ftruncate(self._file, _POSITION_BYTES + len(location) + 1)
        os.fsync(self._file)
        fsync_folder(self._path.parent)
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._written, self._checked, self._flushed_at = position, checked, position.requests

    def advance(self, db: sqlite.Connection) -> None:
        """Write the present position of the journal to the file: its numbers of requests, state changes and credits.

        Call it after each commit. An error is logged once and does not stop the run.
        """
        if self._file is None or (now := read_position(db)) == self._written:
            return
        try:
            os.pwrite(self._file, _position_line(now, checked=self._checked), 0)
            if now.requests - self._flushed_at >= FLUSH_EVERY:
                os.fdatasync(self._file)
                self._flushed_at = now.requests
        except OSError as error:
            _log.warning("%s cannot be written: %s. It no longer follows the journal.", self._path, error)
            self.close()
        self._written = now

    def close(self, *, checked: bool = False) -> None:
        """Flush and close the file. Further calls do nothing.

        If `checked`, first record in the file that the journal is the latest one of the run. Otherwise leave that mark
        as it is.
        """
        file, self._file = self._file, None
        if file is None:
            return
        try:
            if checked and self._written is not None:
                os.pwrite(file, _position_line(self._written, checked=True), 0)
            os.fsync(file)
        except OSError as error:
            _log.warning("%s cannot be written: %s.", self._path, error)
        finally:
            os.close(file)


def _position_line(position: JournalPosition, *, checked: bool) -> bytes:
    return json.dumps({**asdict(position), "checked": checked}).encode().ljust(_POSITION_BYTES - 1) + b"\n"


def _read(content: bytes) -> WatermarkRecord | None:
    try:
        position, location = (json.loads(line) for line in content.splitlines())
        progress = JournalPosition(int(position["steps"]), int(position["requests"]), int(position["credits"]))
        return WatermarkRecord(Path(location["folder"]), progress, bool(position["checked"]))
    except (ValueError, KeyError, TypeError):  # a new file, or one that a power cut damaged
        return None


@sqlite.command
def write_off(db: sqlite.Connection, credits_: int, requests: int, why: str, at: float) -> None:
    """Reserve, for good, the credits that may have been spent on requests that the journal lacks.

    Requests are missing if the journal is an older copy. One new submission without rows stands for all missing
    requests.

    Args:
        db: The journal, in a transaction.
        credits_: Most credits that the missing requests can have cost.
        requests: Number of missing requests.
        why: The reason, as a sentence.
        at: The present time, in seconds since the epoch; stored as the time when the new submission was sent.
    """
    db.execute(
        "INSERT INTO submissions (state, hold, assets, sent_at, attempts, error) VALUES (?, ?, 0, ?, ?, ?)",
        (State.PLANNED, credits_, at, requests, why),
    )
    submission_id = db.last_insert_rowid()
    for event in (Event.HOLD, Event.SEND, Event.LOSE, Event.GIVE_UP, Event.PAY_AGAIN):
        apply_event(db, submission_id, event, at, why)
