"""Decoding of the service's answers, and writing of their rows to the tables' Parquet files by a second thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables.arrow.fact_tables import fact_tables
from lightmeter.tables.gc_control import collector_paused
from lightmeter.tables.parts import PartWriter

_BATCH_BYTES: Final = 2**20
"""Size of answers, in bytes, that are converted to arrays together: enough to make the fixed cost of an array small."""

_MAX_WAITING_WRITES: Final = 16
"""Most Arrow tables queued for the writing thread: about as many as one batch of answers fills."""


class TableWriters:
    """Writes rows, given as Arrow tables or as answers to decode, to one open Parquet file of each table.

    Use it as a context manager. The end of the block waits until everything is written; the caller then closes the
    files. A second thread writes: if it fails, the next call or the end of the block raises its error.

    Args:
        writers: Table → the writer of its Parquet file.
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
                self._wait_for_writes(0)

    def add_answer(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Decode an answer about the manifest rows `items`; queue its entries (tags, errors, …) for writing."""
        self._flattener.add_answer(raw, items, context)
        self._answer_bytes += len(raw)
        if self._answer_bytes >= _BATCH_BYTES:
            self._flush_answers()

    def add_rows(self, table: str, rows: pa.Table) -> None:
        """Queue rows for writing to the Parquet file of a table. Block while the queue is full."""
        self._wait_for_writes(_MAX_WAITING_WRITES)
        self._writes.append(self._thread.submit(self._writers[table].write, rows))

    def _flush_answers(self) -> None:
        self._answer_bytes = 0
        for table, rows in fact_tables(self._flattener.take()).items():
            self.add_rows(table, rows)

    def _wait_for_writes(self, allowed: int) -> None:
        """Block until at most `allowed` of the queued Arrow tables remain to be written."""
        while len(self._writes) > allowed:
            self._writes.popleft().result()
