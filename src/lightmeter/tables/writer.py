"""Answers and rows become Parquet, on as many cores as there is work for, in bounded memory and in their order.

Whoever hands answers in reads some of them, a second process the others (`facts/second.py`); what they say waits packed
until a row group is full. Another thread writes row groups meanwhile: Arrow's writer lets go of Python's lock. Whoever
fills a row group waits until the one before it is written.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from lightmeter.facts.buffers import PackedTable
from lightmeter.facts.flatten import Answer, AnswerContext, Flattener, ItemRef, Packed
from lightmeter.facts.second import Second, begin_second
from lightmeter.tables.arrow_decode import Keys, table_of
from lightmeter.tables.parts import PartWriter
from lightmeter.tables.records import DeferredRows

__all__ = ["ALONE_BYTES", "BATCH_BYTES", "Loader"]

BATCH_BYTES: Final = 2**20
"""Answers that are read together: enough that what is done once for each batch does not count."""

_GROUP_BYTES: Final = 3 * 2**20
"""Bytes gathered for a row group, at most: packed, and without the texts of keys, they are twice as many in Arrow."""

ALONE_BYTES: Final = 8 * 2**20
"""Answers that are read in a quarter of a second, which is about what it takes until a second process is any help."""

_NEVER: Final = 2**62

_WAITING: Final = 4
"""Batches whose facts may wait for those before them."""

_UNDER_WAY: Final = 1
"""Row groups that are being written."""


class Loader:
    """Writes answers and rows to the parts of their tables. A context manager; leaving it waits for all.

    Args:
        writers: Table → its open part.
        alone_bytes: From so many bytes of answers on, a second process reads too, where it has room.

    Raises:
        Whatever writing raises, from `add_answer`, `put`, or at the end.
    """

    def __init__(self, writers: Mapping[str, PartWriter], alone_bytes: int = ALONE_BYTES) -> None:
        self._writers = writers
        self._alone_bytes = alone_bytes
        self._flattener = Flattener()
        self._answers: list[Answer] = []
        self._answer_bytes = 0
        self._second: Second | None = None
        self._made: deque[Packed | None] = deque()  # of answers, in their order; None: by the second
        self._waiting: dict[str, list[tuple[Keys, PackedTable]]] = {table: [] for table in writers}
        self._waiting_bytes = dict.fromkeys(writers, 0)
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
            if error is None:
                self._read()
                self._hand_on(len(self._made))
                for table in self._waiting:
                    self._gather(table)
            while self._under_way and error is None:
                self._under_way.popleft().result()

    def add_answer(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Have an answer written, as `Flattener.add_answer` reads it; returns at once unless too much waits."""
        self._answers.append((raw, items, context))
        self._answer_bytes += len(raw)
        if self._answer_bytes >= BATCH_BYTES:
            self._read()

    def put(self, records: DeferredRows) -> None:
        """Have rows written that are rows already."""
        if records.count:
            self._write(records.table, self._writers[records.table].gather(records.rows(), _GROUP_BYTES))

    def _read(self) -> None:
        """Have the answers read that wait, by whoever has time; what they say is written in their order."""
        answers, self._answers = self._answers, []
        self._alone_bytes -= self._answer_bytes
        self._answer_bytes = 0
        if self._alone_bytes < 0:
            self._alone_bytes = _NEVER
            if second := begin_second():
                self._second = self._stack.enter_context(closing(second))
        if self._second is not None and self._second.can_be_asked:
            self._second.ask(answers)
            self._made.append(None)
        else:
            self._made.append(self._flattener.packed(answers))
        self._hand_on(len(self._made) - _WAITING)

    def _hand_on(self, at_least: int) -> None:
        """Hand on facts in the order of their answers, as far as they are read, or wait for so many."""
        while self._made:
            packed = self._made[0]
            if packed is None:
                if self._second is None or (at_least <= 0 and not self._second.has_answered):
                    return
                packed = self._second.packed()
            self._made.popleft()
            at_least -= 1
            self._keep(packed)

    def _keep(self, packed: Packed) -> None:
        keys = Keys(packed.keys)
        for table, rows in packed.tables.items():
            self._waiting[table].append((keys, rows))
            self._waiting_bytes[table] += rows.size
            if self._waiting_bytes[table] >= _GROUP_BYTES:
                self._gather(table)

    def _gather(self, table: str) -> None:
        """Have written what waits of a table."""
        packed, self._waiting[table], self._waiting_bytes[table] = self._waiting[table], [], 0
        if packed:
            self._write(table, self._writers[table].gather(table_of(table, packed), 0))

    def _write(self, table: str, group: list[pa.Table]) -> None:
        if group:
            while len(self._under_way) >= _UNDER_WAY:
                self._under_way.popleft().result()
            self._under_way.append(self._lane.submit(self._writers[table].write_group, group))
            gc.collect(1)  # what others left behind meanwhile, without the walk over all that is old
