"""One SQLite file for a run: one writer thread, group commits, any number of readers.

Every change is a function of the connection, handed to `write`. The writer takes all that are waiting, runs each in a
savepoint of its own inside one transaction, and commits once: a commit costs a disk flush, a change almost nothing.
A change that has a `together(db, changes)` is done at once with all of its kind that wait: much of what a statement
takes it takes for each call, and each call hands the interpreter to another thread. Those who wait do not wait for each
other, so their order is free; if not all of them can be done, each is tried alone.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import apsw

from lightmeter.atomic import fsync_folder
from lightmeter.errors import JournalError
from lightmeter.journal.files import Reserve, connect, journal_path, take_lock
from lightmeter.journal.schema import APPLICATION_ID, SCHEMA, VERSION, migrate

__all__ = ["Change", "Journal", "open_read_only"]

T = TypeVar("T")
Change = Callable[[apsw.Connection], T]
"""A change: runs inside the writer's transaction; what it returns goes to the caller once it is on disk."""

_Told = Future[Any] | asyncio.Future[Any]
"""Who waits for a change: in any thread, or in a loop."""

_Waiting = tuple[Change[Any], _Told]
_Together = Callable[[apsw.Connection, Sequence[Change[Any]]], Sequence[Any]]

_Outcome = tuple[_Told, Any, BaseException | None]
"""Who waits, what the change returned, or why it failed."""

MAX_IN_A_COMMIT: Final = 512
DISK_ERRORS: Final = (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.ReadOnlyError, apsw.CantOpenError)


def _open_for_writing(path: Path) -> apsw.Connection:
    connection = None
    try:
        connection = connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("foreign_keys", "on")
        _create_if_empty(connection, path)
        _check_version(connection, path)
    except apsw.Error as error:
        raise JournalError(
            f"{path} cannot be written: {error}.", hint="Is the disk full, or the folder read-only? Nothing was sent."
        ) from error
    except JournalError:
        if connection is not None:
            connection.close()
        raise
    return connection


def _create_if_empty(connection: apsw.Connection, path: Path) -> None:
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_schema")
    if not tables:
        with connection:
            connection.execute(SCHEMA)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", VERSION)
        fsync_folder(path.parent)


def _check_version(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise JournalError(f"{path} is not a journal of lightmeter.", hint="Choose another output folder.")
    migrate(connection, path)


@contextmanager
def open_read_only(folder: Path) -> Iterator[apsw.Connection]:
    """A read-only connection to the journal of `folder`, also while a run writes to it.

    Raises:
        JournalError: there is no journal there, or it cannot be read; also when that shows inside the block.
        JournalVersion: it was written by a newer lightmeter.
    """
    path = journal_path(folder)
    if not path.exists():
        raise JournalError(
            f"{folder} holds no run: {path} is missing.", hint="Start one: lightmeter run MANIFEST --out DIR"
        )
    connection = None
    try:
        connection = _open_for_reading(path)
        connection.pragma("query_only", "on")
        yield connection
    except apsw.Error as error:  # also one raised inside the block: a page may be broken anywhere
        raise JournalError(f"{path} cannot be read: {error}.") from error
    finally:
        if connection is not None:
            connection.close()


def _open_for_reading(path: Path) -> apsw.Connection:
    """Not with SQLITE_OPEN_READONLY: a reader must be able to make the WAL index of a journal that was left behind.

    Where nothing can be written, on a read-only medium, the file is read as it is, unless a log lies beside it.
    """
    connection = connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        _check_version(connection, path)
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if os.access(path.parent, os.W_OK) or (log.exists() and log.stat().st_size):
            raise
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        connection = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        _check_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


class Journal:
    """The run's memory, open for writing. Use it as a context manager.

    Attributes:
        folder: Where it is.
        disk_is_full: The disk had no room; what was kept free for answers in flight is being used up.

    Raises:
        JournalLocked: another process writes to this folder.
        JournalVersion: it was written by a newer version.
        JournalError: it cannot be opened or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = take_lock(folder)
        try:
            self._reserve = Reserve(folder)
        except BaseException:
            self._lock.close()
            raise
        try:
            self._connection = _open_for_writing(journal_path(folder))
        except BaseException:
            self._reserve.release()
            self._lock.close()
            raise
        self.disk_is_full = False
        self._queue: queue.SimpleQueue[list[_Waiting] | None] = queue.SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        self.after_commit: Callable[[apsw.Connection], None] | None = None
        """Called by the writer after each commit, before anybody is told of it."""
        self._thread = threading.Thread(target=self._serve, name="lightmeter-journal", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what was handed in, then close; idempotent."""
        if self._thread.is_alive():
            for loop in list(self._gathered):
                self._hand_in(loop)
            self._queue.put(None)
            self._thread.join()
        self._connection.close()
        self._reserve.release()
        self._lock.close()

    async def write(self, change: Change[T]) -> T:
        """Run a change; returns when it is on disk. A cancelled caller does not take the change back.

        What a loop's tasks write in one round of it is handed in together: the writer is woken once, not for each.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._must_be_open()
        gathered = self._gathered.get(loop)
        if gathered is None:
            gathered = self._gathered[loop] = []
            loop.call_soon(self._hand_in, loop)
        gathered.append((change, future))
        return await future

    def submit(self, change: Change[T]) -> Future[T]:
        """Hand a change to the writer from any thread."""
        future: Future[T] = Future()
        self._must_be_open()
        self._queue.put([(change, future)])
        return future

    def _must_be_open(self) -> None:
        if not self._thread.is_alive():
            raise JournalError("The journal is closed.")

    def _hand_in(self, loop: asyncio.AbstractEventLoop) -> None:
        if gathered := self._gathered.pop(loop, None):  # (else the journal was closed, which has handed it in)
            self._queue.put(gathered)

    def _serve(self) -> None:
        open_ = True
        while open_:
            waiting = self._queue.get()
            if waiting is None:
                return
            while len(waiting) < MAX_IN_A_COMMIT and not self._queue.empty():
                another = self._queue.get()
                if another is None:
                    open_ = False
                    break
                waiting += another
            self._commit(waiting)

    def _commit(self, waiting: list[_Waiting]) -> None:
        """One transaction for all that wait: they are all on disk, or none is."""
        try:
            try:
                outcomes = self._transaction(waiting)
            except apsw.FullError:
                self.disk_is_full = True
                if not self._reserve.release():
                    raise
                outcomes = self._transaction(waiting)
        except apsw.Error as error:
            failure = JournalError(
                f"{journal_path(self.folder)} cannot be written: {error}.",
                hint="Is the disk full? Nothing more is sent.",
            )
            outcomes = [(future, None, failure) for _, future in waiting]
        _tell(outcomes)

    def _transaction(self, waiting: list[_Waiting]) -> list[_Outcome]:
        db = self._connection
        try:
            db.execute("BEGIN IMMEDIATE")
            outcomes = list(self._apply_all(waiting))
            db.execute("COMMIT")
            if self.after_commit is not None:
                self.after_commit(db)
        except apsw.Error:
            if db.in_transaction:  # a full disk has rolled it back already
                with suppress(apsw.Error):  # whatever it says, those who wait must be told
                    db.execute("ROLLBACK")
            raise
        return outcomes

    def _apply_all(self, waiting: Sequence[_Waiting]) -> Iterator[_Outcome]:
        alike: dict[_Together, list[_Waiting]] = {}
        for change, future in waiting:
            together = getattr(change, "together", None)
            if together is None:
                yield future, *self._within_savepoint(change)
            else:
                alike.setdefault(together, []).append((change, future))
        for together, those in alike.items():
            yield from self._apply_together(together, those)

    def _apply_together(self, together: _Together, those: Sequence[_Waiting]) -> Iterator[_Outcome]:
        if len(those) > 1:
            results, problem = self._within_savepoint(lambda db: together(db, [change for change, _ in those]))
            if problem is None:
                yield from ((future, result, None) for (_, future), result in zip(those, results, strict=True))
                return
        for change, future in those:
            yield future, *self._within_savepoint(change)

    def _within_savepoint(self, change: Change[Any]) -> tuple[Any, Exception | None]:
        """Run it in a savepoint of its own, so that a bad change does not take the others with it."""
        db = self._connection
        db.execute("SAVEPOINT change")
        try:
            result = change(db)
        except Exception as error:
            if isinstance(error, DISK_ERRORS) or not db.in_transaction:  # the disk, not the change
                raise
            db.execute("ROLLBACK TO change")
            db.execute("RELEASE change")
            return None, error
        db.execute("RELEASE change")
        return result, None


def _tell(outcomes: Sequence[_Outcome]) -> None:
    """Tell everybody who waits what became of the change; each loop is woken once, however many wait in it."""
    in_loops: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        future = outcome[0]
        if isinstance(future, asyncio.Future):
            in_loops.setdefault(future.get_loop(), []).append(outcome)
        else:
            _settle(outcome)
    for loop, theirs in in_loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(_settle_all, theirs)


def _settle_all(outcomes: Sequence[_Outcome]) -> None:
    for outcome in outcomes:
        if not outcome[0].done():  # else who waited was cancelled
            _settle(outcome)


def _settle(outcome: _Outcome) -> None:
    future, result, problem = outcome
    if problem is not None:
        future.set_exception(problem)
    else:
        future.set_result(result)
