"""Decoding of the service's answers, and writing of their rows to the tables' Parquet files.

All work is done in the thread of the caller. A second thread for the writing was measured: it takes a quarter more
processor time, as both threads need Python's global lock. Large exports use several processes instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables.arrow.fact_tables import fact_tables
from lightmeter.tables.gc_control import collector_paused
from lightmeter.tables.parts import PartWriter

_BATCH_BYTES: Final = 2**21
"""Size of answers, in bytes, that are converted to arrays together: enough to make the fixed cost of an array small."""


@contextmanager
def open_table_writers(writers: Mapping[str, PartWriter]) -> Iterator[TableWriters]:
    """Let a block write rows to `writers`: table → the writer of its Parquet file, which the caller closes.

    At the end of the block all rows are in the writers. In the block, Python's garbage collector is off.
    """
    with collector_paused():
        opened = TableWriters(writers)
        yield opened
        opened.flush_answers()


class TableWriters:
    """Writes rows, given as Arrow tables or as answers to decode, to the Parquet files of `open_table_writers`."""

    def __init__(self, writers: Mapping[str, PartWriter]) -> None:
        self._writers = writers
        self._flattener = Flattener()
        self._answer_bytes = 0

    def add_answer(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Decode an answer about the manifest rows `items`, and add its entries (tags, errors, …) to the tables.

        `raw` is the JSON of the answer; `context` has facts about its request, which are stored with the entries.
        """
        self._flattener.add_answer(raw, items, context)
        self._answer_bytes += len(raw)
        if self._answer_bytes >= _BATCH_BYTES:
            self.flush_answers()

    def add_rows(self, table: str, rows: pa.Table) -> None:
        """Add rows to the Parquet file of a table."""
        self._writers[table].write(rows)

    def flush_answers(self) -> None:
        """Write the rows of the answers that wait for a full batch."""
        self._answer_bytes = 0
        for table, rows in fact_tables(self._flattener.take()).items():
            self.add_rows(table, rows)
