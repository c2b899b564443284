"""SQLite for the whole project: opens databases, locks them between processes, and writes with group commits.

A *change* is a function `f(connection)` that writes. `GroupCommitWriter` has one connection on one thread. It takes all
queued changes, runs each in its own savepoint inside one transaction, and commits once: a commit needs a disk flush.

A change whose class has a static method `apply_all(db, changes)` is applied in one call together with all queued
changes of that class, because each SQL call has a fixed cost. The method returns the result of each change, in order.
Such changes run after the other queued changes. If `apply_all` fails, each of its changes is tried alone.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import apsw
from apsw import BusyError, CantOpenError, Connection, Cursor, Error, FullError, ReadOnlyError

__all__ = [
    "BusyError",
    "CantOpenError",
    "Change",
    "Connection",
    "Cursor",
    "Error",
    "FullError",
    "GroupCommitWriter",
    "ReadOnlyError",
    "WriterClosed",
    "command",
    "connect",
    "hold_exclusive_lock",
    "is_exclusively_locked",
    "open_immutable",
    "open_read_only",
    "open_wal",
    "set_journal_mode",
    "write_transaction",
]

_log: Final = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Change = Callable[[Connection], T]
"""A function that `GroupCommitWriter` runs inside a transaction; its caller gets the result after the commit."""

_AnyFuture = Future[Any] | asyncio.Future[Any]
_QueuedChange = tuple[Change[Any], _AnyFuture]
_ApplyAll = Callable[[Connection, Sequence[Change[Any]]], Sequence[Any]]
_Outcome = tuple[_AnyFuture, Any, BaseException | None]
"""The caller's future, the result of the change (None if it failed), and its exception (None if it succeeded)."""

BUSY_TIMEOUT_MS: Final = 10_000
"""How long a statement waits for another process; all transactions of this project take milliseconds."""

LOCK_WAIT_MS: Final = 250
"""How long `hold_exclusive_lock` waits: `is_exclusively_locked` in another process takes the lock for a moment."""

MAX_CHANGES_PER_COMMIT: Final = 512
"""Most changes in one transaction. The limit bounds the wait of the first change's caller for the last change."""

_DISK_ERRORS: Final = (apsw.FullError, apsw.IOError, apsw.CorruptError, ReadOnlyError, CantOpenError)
"""Errors of the disk, not of one statement. Any of them fails the whole transaction."""


def command(function: Callable[Concatenate[Connection, P], T]) -> Callable[P, Change[T]]:
    """Decorate a function `f(db, *args)` that writes to a database, so that `GroupCommitWriter` can run it later.

    The decorated function is called as `f(*args)`; it returns a function that takes only `db`.
    """

    @wraps(function)
    def bind(*args: P.args, **kwargs: P.kwargs) -> Change[T]:
        return lambda db: function(db, *args, **kwargs)

    return bind


def connect(path: Path, *, create: bool = True, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Connection:
    """Open a database for reading and writing.

    Args:
        path: The database file.
        create: Whether a missing file is created; otherwise it is an error.
        busy_timeout_ms: Milliseconds that a statement waits while another process holds a lock.

    Raises:
        Error: the file cannot be opened.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = Connection(str(path), flags=flags)
    connection.set_busy_timeout(busy_timeout_ms)
    return connection


def open_wal(
    path: Path, *, synchronous: Literal["full", "normal"] = "full", busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> Connection:
    """Open a database for writing in WAL mode, so that readers and the writer do not block each other.

    Args:
        path: The database file; created if it is missing.
        synchronous: `full` flushes every commit to disk; `normal` may lose the last commits in a power cut.
        busy_timeout_ms: Milliseconds that a statement waits while another process holds a lock.

    Raises:
        Error: the file cannot be opened, or is no database.
    """
    connection = connect(path, busy_timeout_ms=busy_timeout_ms)
    try:
        set_journal_mode(connection, "wal", busy_timeout_ms / 1000)
        connection.pragma("synchronous", synchronous)
        connection.pragma("foreign_keys", "on")
    except BaseException:
        connection.close()
        raise
    return connection


def set_journal_mode(connection: Connection, mode: Literal["wal", "delete"], timeout_s: float) -> None:
    """Switch a database to WAL mode, or back to a rollback journal (`delete`).

    While another process uses the database, retry for up to `timeout_s` seconds.

    Raises:
        BusyError: another process still uses it.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection.pragma("journal_mode", mode)
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def open_read_only(path: Path) -> Connection:
    """Open an existing database for reading; a statement raises `BusyError` at once if another process locks it."""
    return Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)


def open_immutable(path: Path) -> Connection:
    """Open a database on a read-only medium, without locks and without its write-ahead log."""
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    return Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def hold_exclusive_lock(path: Path) -> Connection:
    """Lock a file between processes until the returned connection is closed or the process dies, however it dies.

    The lock is an exclusive transaction on an empty database in that file.

    Raises:
        BusyError: another process holds the lock.
        Error: the file cannot be made or opened.
    """
    lock = connect(path, busy_timeout_ms=LOCK_WAIT_MS)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except BaseException:
        lock.close()
        raise
    return lock


def is_exclusively_locked(path: Path) -> bool:
    """Return whether a process holds the lock that `hold_exclusive_lock` acquires on this file."""
    try:
        with closing(open_read_only(path)) as lock:
            lock.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except Error as error:
        return isinstance(error, BusyError)
    return False


@contextmanager
def write_transaction(db: Connection) -> Iterator[None]:
    """Run the block in a transaction that has the write lock from its start; roll it back if the block raises."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has already rolled it back
            with suppress(Error):  # the first error is the one to report
                db.execute("ROLLBACK")
        raise


class WriterClosed(RuntimeError):
    """Raised when a function is passed to a `GroupCommitWriter` that is closed."""


class GroupCommitWriter:
    """A thread that runs functions which write to a database, and commits the work of many of them at once.

    Args:
        connection: The database; the writer closes it.
        name: Name of the thread.
        to_error: Converts an SQLite error of a whole transaction to the exception that the callers receive.
        free_disk_space: Called when the disk is full; True if it freed space, so that the commit is tried again.

    Attributes:
        after_commit: Called by the writer's thread after each commit, before any caller learns of it. If it raises an
            exception, this is logged, and the function is not called again.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        to_error: Callable[[Error], Exception],
        free_disk_space: Callable[[], bool] = lambda: False,
    ) -> None:
        self._db = connection
        self._to_error = to_error
        self._free_disk_space = free_disk_space
        self.after_commit: Callable[[Connection], None] | None = None
        self._queued: deque[_QueuedChange] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._loops_to_wake: set[asyncio.AbstractEventLoop] = set()
        self._wake_ups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Run everything that is queued, then end the thread and close the database connection; idempotent."""
        with self._lock:
            self._closed = True
        self._wake_ups.put(None)
        self._thread.join()
        self._db.close()

    async def write(self, change: Change[T]) -> T:
        """Run `change`, a function that writes to the database; return its result once the commit is on disk.

        If the caller is cancelled, the function runs nevertheless.

        Raises:
            WriterClosed: the writer is closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._enqueue(change, future)
        if loop not in self._loops_to_wake:
            self._loops_to_wake.add(loop)
            loop.call_soon(self._wake_up, loop)
        return await future

    def submit(self, change: Change[T]) -> Future[T]:
        """Queue `change`, a function that writes to the database, from any thread; return the future of its result.

        Raises:
            WriterClosed: the writer is closed.
        """
        future: Future[T] = Future()
        self._enqueue(change, future)
        self._wake_ups.put(None)
        return future

    def _enqueue(self, change: Change[Any], future: _AnyFuture) -> None:
        with self._lock:  # after `close` nothing may be queued: the thread has ended
            if self._closed:
                raise WriterClosed("The database is closed.")
            self._queued.append((change, future))

    def _wake_up(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loops_to_wake.discard(loop)
        self._wake_ups.put(None)

    def _run(self) -> None:
        closed = False
        while not closed:
            self._wake_ups.get()
            closed = self._closed  # read before the queue is emptied: nothing is queued once it is True
            while self._queued:
                count = min(len(self._queued), MAX_CHANGES_PER_COMMIT)
                self._commit([self._queued.popleft() for _ in range(count)])

    def _commit(self, batch: Sequence[_QueuedChange]) -> None:
        """Run queued changes in one transaction.

        If the disk is full, run each in a transaction of its own, so that small ones may succeed.
        """
        try:
            outcomes = self._transaction(batch)
        except apsw.FullError as error:
            if self._free_disk_space():
                self._commit(batch)
                return
            if len(batch) > 1:
                for one in batch:
                    self._commit([one])
                return
            outcomes = self._failed(batch, error)
        except Error as error:
            outcomes = self._failed(batch, error)
        except Exception as error:  # noqa: BLE001 (whatever it is: without this thread, all callers would wait forever)
            outcomes = [(future, None, error) for _, future in batch]
        _deliver(outcomes)

    def _failed(self, batch: Sequence[_QueuedChange], error: Error) -> list[_Outcome]:
        failure = self._to_error(error)
        failure.__cause__ = error
        return [(future, None, failure) for _, future in batch]

    def _transaction(self, batch: Sequence[_QueuedChange]) -> list[_Outcome]:
        with write_transaction(self._db):
            outcomes = list(self._apply_batch(batch))
        try:
            if self.after_commit is not None:
                self.after_commit(self._db)
        except Exception:  # noqa: BLE001 (whatever it is: the changes are on disk, so their callers see no failure)
            _log.exception("A function that follows a database failed; it is not called again.")
            self.after_commit = None
        return outcomes

    def _apply_batch(self, batch: Sequence[_QueuedChange]) -> Iterator[_Outcome]:
        groups: dict[_ApplyAll, list[_QueuedChange]] = {}
        for change, future in batch:
            apply_all = getattr(change, "apply_all", None)
            if apply_all is None:
                yield future, *self._apply_in_savepoint(change)
            else:
                groups.setdefault(apply_all, []).append((change, future))
        for apply_all, group in groups.items():
            yield from self._apply_group(apply_all, group)

    def _apply_group(self, apply_all: _ApplyAll, group: Sequence[_QueuedChange]) -> Iterator[_Outcome]:
        if len(group) > 1:
            results, error = self._apply_in_savepoint(lambda db: apply_all(db, [change for change, _ in group]))
            if error is None:
                yield from ((future, result, None) for (_, future), result in zip(group, results, strict=True))
                return
        for change, future in group:
            yield future, *self._apply_in_savepoint(change)

    def _apply_in_savepoint(self, change: Change[Any]) -> tuple[Any, Exception | None]:
        """Run a function that writes in a savepoint, so that its failure does not undo the other functions' changes.

        Return (result, None), or (None, exception) if the function failed.
        """
        db = self._db
        db.execute("SAVEPOINT change")
        try:
            result = change(db)
        except Exception as error:
            if isinstance(error, _DISK_ERRORS):
                raise
            if not db.in_transaction:
                raise apsw.FullError("SQLite has rolled the transaction back.") from error
            db.execute("ROLLBACK TO change")
            db.execute("RELEASE change")
            return None, error
        db.execute("RELEASE change")
        return result, None


def _deliver(outcomes: Sequence[_Outcome]) -> None:
    """Set the result or the exception of each caller's future.

    The futures of one event loop are set by a single callback in that loop.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        future = outcome[0]
        if isinstance(future, asyncio.Future):
            by_loop.setdefault(future.get_loop(), []).append(outcome)
        else:
            _complete([outcome])
    for loop, theirs in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(_complete, theirs)


def _complete(outcomes: Sequence[_Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():  # its caller was cancelled
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
