"""Batches become Parquet while the next ones are collected: Arrow's reader and writer let go of Python's lock.

Each table has one thread, so that its rows stay in order; the threads have about the same to do. Memory is bounded:
whoever hands in a batch waits until the one before the last is written.
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

BATCH_BYTES: Final = 8 * 2**20
"""About what a batch should hold: enough that what is done once for each does not count, little enough for memory."""

_FIRST_LANE: Final = frozenset({"tags", "descriptions", "texts", "brands"})
_UNDER_WAY: Final = 2
"""Batches that are being written at a time."""


class Batch(Protocol):
    """Rows of one table or several, not yet made Arrow."""

    @property
    def filled(self) -> list[str]:
        """The tables that have rows or may have some."""
        ...

    def table(self, name: str) -> pa.Table:
        """The rows of one of the filled tables; asked once for each, by any thread."""
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
        self._under_way: deque[list[Future[None]]] = deque()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._lanes = [self._stack.enter_context(ThreadPoolExecutor(1, "lightmeter-tables")) for _ in range(2)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            while self._under_way and error is None:
                self._wait()

    def put(self, batch: Batch) -> None:
        """Have a batch written; returns at once unless too many wait."""
        while len(self._under_way) >= _UNDER_WAY:
            self._wait()
        lanes = {table: self._lanes[table in _FIRST_LANE] for table in batch.filled}
        self._under_way.append([lane.submit(self._write, batch, table) for table, lane in lanes.items()])

    def _write(self, batch: Batch, table: str) -> None:
        self._writers[table].write(batch.table(table))

    def _wait(self) -> None:
        for written in self._under_way.popleft():
            written.result()
