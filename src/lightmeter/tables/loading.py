"""Batches become Parquet while the next ones are collected: Arrow's writer lets go of Python's lock.

Whoever hands in a batch makes its tables Arrow; full row groups are written by one other thread, in order. It asks for
Python's lock a few times a group only: each time, either thread may have to wait for the other. Memory is bounded:
whoever fills a row group waits until the one before the last is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Protocol, Self

import pyarrow as pa

from lightmeter.tables.parts import PartWriter

__all__ = ["BATCH_BYTES", "Batch", "Loader"]

BATCH_BYTES: Final = 2 * 2**20
"""About what a batch should hold: enough that what is done once for each does not count, little enough for memory."""

_GROUP_BYTES: Final = 4 * 2**20
"""Bytes gathered for a row group, at most: texts of keys wait as dictionaries, and are twice as many when written."""

_UNDER_WAY: Final = 2
"""Row groups that are being written or wait for it."""


class Batch(Protocol):
    """Rows of one table or several, not yet made Arrow."""

    @property
    def filled(self) -> list[str]:
        """The tables that have rows or may have some."""
        ...

    def table(self, name: str) -> pa.Table:
        """The rows of one of the filled tables; asked once for each. Columns may be dictionaries of their type."""
        ...


class Loader:
    """Writes batches to the parts of their tables. Use it as a context manager; leaving it waits for all.

    Args:
        writers: Table → its open part.

    Raises:
        Whatever writing raises, from `put` or at the end.
    """

    def __init__(self, writers: Mapping[str, PartWriter]) -> None:
        self._writers = writers
        self._under_way: deque[Future[None]] = deque()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Arrow's usual pools keep more of what is freed; arrays that are alive stay with theirs.
        self._stack.callback(pa.set_memory_pool, pa.default_memory_pool())
        pa.set_memory_pool(pa.system_memory_pool())
        self._lane = self._stack.enter_context(ThreadPoolExecutor(1, "lightmeter-tables"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            while self._under_way and error is None:
                self._under_way.popleft().result()

    def put(self, batch: Batch) -> None:
        """Have a batch written; returns at once unless too much waits."""
        for name in batch.filled:
            writer = self._writers[name]
            if group := writer.gather(batch.table(name), _GROUP_BYTES):
                while len(self._under_way) >= _UNDER_WAY:
                    self._under_way.popleft().result()
                self._under_way.append(self._lane.submit(writer.write_group, group))
