"""Pre-checks many rows of a manifest at the same time, and yields them in their order, with their results.

A slow row does not delay the checks of the next `MAX_UNFINISHED` rows. Each result and thumbnail is soon stored on
disk. If planning is killed and started again, rows with a stored result are not checked again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType
from typing import Final, Protocol, Self

from lightmeter.daemon_threads import call_in_daemon_thread
from lightmeter.journal.thumbnails import ThumbnailStore
from lightmeter.manifest.item import Item
from lightmeter.planning.checks.check_cache import CheckCache
from lightmeter.prechecks.finding import CheckResult

CHUNK_ROWS: Final = 256
"""Number of rows that are read together, and later written to the journal together in one commit."""

MAX_UNFINISHED: Final = 4096
"""Most rows in work at the same time: rows that are being checked, and checked rows that wait for an earlier row."""

_STEP_S: Final = 1.0
"""Seconds after which `check_rows` yields a value even if no row is ready, so that progress is shown."""


class RowChecker(Protocol):
    """An async context manager that checks manifest rows, such as `lightmeter.prechecks.check.Checker`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def check(self, item: Item) -> CheckResult:
        """Look for problems of the file or URL of one manifest row, and return them with the facts found.

        A row with problems raises no error.
        """
        ...


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Some rows whose pre-check has ended, and the progress so far; `check_rows` yields such objects.

    Attributes:
        rows: The next rows in the order of the manifest, each with its result (None if the row was not checked).
        checked: Number of rows checked so far, including checked rows that wait for an earlier row.
    """

    rows: list[tuple[Item, CheckResult | None]]
    checked: int


async def check_rows(
    items: Iterator[Item], checker: RowChecker | None, cache: CheckCache | None, thumbnails: ThumbnailStore
) -> AsyncGenerator[CheckedRows]:
    """Check many rows at the same time, and yield them in the order of `items` with their results.

    If no row is ready within a second, yield a `CheckedRows` without rows, so that the caller can show the progress.

    Args:
        items: The rows of the manifest.
        checker: Checks the rows; if None, they are not checked.
        cache: File with results of earlier checks; the new results are added to it. None: earlier results are not used,
            and the new ones are not stored.
        thumbnails: File to which the thumbnails are written; the yielded results do not contain them.
    """
    window = _Window(checker, cache, thumbnails)
    try:
        while True:
            while window.has_room and (chunk := await _read_chunk(items)):
                await window.add(chunk)
                if window.is_first_done:
                    break
            await window.wait()
            await window.keep_new()
            rows = window.take(CHUNK_ROWS)
            if not rows and window.is_empty:
                return
            yield CheckedRows(rows, window.checked)
    finally:
        await window.close()


async def _read_chunk(items: Iterator[Item]) -> list[Item]:
    """Return the next rows, at most `CHUNK_ROWS`.

    The user's iterator, or a file on another machine, may block: neither Ctrl-C nor the process's end waits for it.
    """
    return await call_in_daemon_thread(lambda: list(islice(items, CHUNK_ROWS)), "lightmeter-manifest")


class _Window:
    """Queue of manifest rows that are being checked, or are checked and wait for an earlier row."""

    def __init__(self, checker: RowChecker | None, cache: CheckCache | None, thumbnails: ThumbnailStore) -> None:
        self._checker = checker
        self._cache = cache
        self._thumbnails = thumbnails
        self._new_thumbnails: dict[str, bytes] = {}
        self._rows: deque[tuple[Item, asyncio.Task[CheckResult | None]]] = deque()
        self._new: list[tuple[bytes, CheckResult]] = []
        self.checked = 0

    @property
    def has_room(self) -> bool:
        return len(self._rows) <= MAX_UNFINISHED - CHUNK_ROWS

    @property
    def is_empty(self) -> bool:
        return not self._rows

    @property
    def is_first_done(self) -> bool:
        return bool(self._rows) and self._rows[0][1].done()

    async def add(self, items: list[Item]) -> None:
        """Append rows to the queue and start their checks; a row with a stored result is not checked again."""
        none: list[tuple[bytes, CheckResult | None]] = [(b"", None)] * len(items)
        found = none if self._cache is None else await asyncio.to_thread(self._cache.find, items)
        for item, (key, result) in zip(items, found, strict=True):
            self._rows.append((item, asyncio.create_task(self._check(item, key, result))))

    async def _check(self, item: Item, key: bytes, result: CheckResult | None) -> CheckResult | None:
        if result is None and self._checker is not None and not item.problem:
            result = await self._checker.check(item)
            if result.thumbnail is not None and result.content_sha256 is not None:
                self._new_thumbnails[result.content_sha256] = result.thumbnail
            result = replace(result, thumbnail=None)
            if self._cache is not None:
                self._new.append((key, result))
        self.checked += 1
        return result

    async def wait(self) -> None:
        """Wait until the first row in the queue is checked, but no longer than one second."""
        if self._rows:
            await asyncio.wait({self._rows[0][1]}, timeout=_STEP_S)

    async def keep_new(self) -> None:
        """Store on disk the thumbnails and the check results that are new since the last call."""
        new, self._new, pictures, self._new_thumbnails = self._new, [], self._new_thumbnails, {}
        if pictures:  # before the results: a row whose result is kept is not decoded again
            await asyncio.to_thread(self._thumbnails.add, pictures.items())
        if self._cache is not None and new:
            await asyncio.to_thread(self._cache.add, new)

    def take(self, most: int) -> list[tuple[Item, CheckResult | None]]:
        """Remove the finished rows at the start of the queue, up to `most`, and return them with their results.

        The result is None for a row that was not checked: the manifest row itself is faulty (`Item.problem`), or there
        is neither a checker nor a stored result.
        """
        taken: list[tuple[Item, CheckResult | None]] = []
        while len(taken) < most and self.is_first_done:
            item, check = self._rows.popleft()
            taken.append((item, check.result()))
        return taken

    async def close(self) -> None:
        """Cancel the checks that still run, and store the results of those that have ended."""
        for _, check in self._rows:
            check.cancel()
        await asyncio.gather(*(check for _, check in self._rows), return_exceptions=True)
        await self.keep_new()
