"""Decoding of the service's answers, and writing of their rows to the tables' Parquet files.

All work is done in the thread of the caller. According to measurements, a second thread for writing would cost a
quarter more processor time, because both threads need Python's global lock. Large exports use several processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from lightmeter.facts.fact_columns import FactRows
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables.arrow.fact_tables import fact_tables
from lightmeter.tables.gc_control import pause_gc
from lightmeter.tables.parts import PartWriter


@contextmanager
def open_table_writers(writers: Mapping[str, PartWriter]) -> Iterator[TableWriters]:
    """Yield an object that decodes answers and writes their rows to `writers`: table → writer of its Parquet file.

    At the end of the block, all rows are in the writers; the caller must close them. Inside the block, Python's garbage
    collector is off.
    """
    with pause_gc():
        opened = TableWriters(writers)
        yield opened
        opened.flush_answers()


class TableWriters:
    """Writes the rows of answers and of Arrow tables to the tables' Parquet files. `open_table_writers` yields it."""

    def __init__(self, writers: Mapping[str, PartWriter]) -> None:
        self._writers = writers
        self._flattener = Flattener(self._write_facts)

    def add_answer(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Decode an answer about the manifest rows `items`, and add its entries (tags, errors, …) to the tables.

        `raw` is the JSON of the answer. `context` is what is known about its request; it is stored with the entries.
        """
        self._flattener.add_answer(raw, items, context)

    def add_rows(self, table: str, rows: pa.Table) -> None:
        """Add rows to the Parquet file of a table."""
        self._writers[table].write(rows)

    def flush_answers(self) -> None:
        """Write the rows of the answers that were added but not yet written, because their batch was not full."""
        self._write_facts(self._flattener.take())

    def _write_facts(self, facts: FactRows) -> None:
        for table, rows in fact_tables(facts).items():
            self.add_rows(table, rows)
