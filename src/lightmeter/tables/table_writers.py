"""Answers and rows become Parquet parts: facts are decoded in the caller's thread, files are written by another one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables.fact_arrays import fact_tables
from lightmeter.tables.gc_control import collector_paused
from lightmeter.tables.parts import PartWriter

__all__ = ["TableWriters"]

_BATCH_BYTES: Final = 2**20
"""Bytes of answers that become arrays together: enough that the fixed cost of an array does not count."""

_MAX_WAITING_WRITES: Final = 16
"""Tables that may wait for the writing thread: about as many as one batch of answers fills."""


class TableWriters:
    """Writes answers and rows to the open parts of their tables. Use it as a context manager: leaving it waits for all.

    The caller closes the parts. Whatever writing raises, a later call or the end of the block raises.

    Args:
        writers: Table → its open part.
    """

    def __init__(self, writers: Mapping[str, PartWriter]) -> None:
        self._writers = writers
        self._flattener = Flattener()
        self._answer_bytes = 0
        self._writes: deque[Future[None]] = deque()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(collector_paused())
        self._thread = self._stack.enter_context(ThreadPoolExecutor(1, "lightmeter-tables"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if error is None:
                self._flush_answers()
                self._wait(0)

    def add_answer(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Write the facts and errors of an answer; arguments as for `Flattener.add_answer`."""
        self._flattener.add_answer(raw, items, context)
        self._answer_bytes += len(raw)
        if self._answer_bytes >= _BATCH_BYTES:
            self._flush_answers()

    def add_rows(self, table: str, rows: pa.Table) -> None:
        """Write rows of a table."""
        self._wait(_MAX_WAITING_WRITES)
        self._writes.append(self._thread.submit(self._writers[table].write, rows))

    def _flush_answers(self) -> None:
        self._answer_bytes = 0
        for table, rows in fact_tables(self._flattener.take()).items():
            self.add_rows(table, rows)

    def _wait(self, allowed: int) -> None:
        """Wait until at most so many writes are left to do."""
        while len(self._writes) > allowed:
            self._writes.popleft().result()
