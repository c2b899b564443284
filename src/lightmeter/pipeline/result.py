"""A run that is there to be looked at: its accounting, its tables, its answers to SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from lightmeter.errors import AccessDenied, JournalError, LightmeterError
from lightmeter.journal.items import count_by_status, reasons, totals
from lightmeter.journal.store import reading
from lightmeter.journal.submissions import requests_sent
from lightmeter.pipeline.plan import Reason
from lightmeter.pipeline.session import Header, read_header
from lightmeter.pipeline.statement import Statement, state_account
from lightmeter.tables import queries
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.schema import TABLES

__all__ = ["Run", "Summary", "summarize"]


@dataclass(frozen=True, slots=True)
class Summary:
    """The accounting of a run: every row in exactly one count, every credit paid or held.

    Attributes:
        rows: All rows of the manifest.
        counts: Rows by status; they add up to `rows`.
        requests: POSTs ever sent.
        paid: Credits paid.
        held: Credits set aside for requests whose end is not known.
        budget: The cap, or None.
        balance_before: Of the account before the first request, or None if none was made.
        balance_after: Of the account at the last look.
        seconds: Spent running, over all starts.
        out: The folder.
    """

    rows: int
    counts: dict[str, int]
    requests: int
    paid: int
    held: int
    budget: int | None
    balance_before: int | None
    balance_after: int | None
    seconds: float
    out: Path

    def to_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "rows": self.rows,
            **self.counts,
            "requests": self.requests,
            "credits": {
                "paid": self.paid,
                "held": self.held,
                "budget": self.budget,
                "balance_before": self.balance_before,
                "balance_after": self.balance_after,
            },
            "seconds": round(self.seconds, 3),
            "out": str(self.out),
        }

    @property
    def exit_code(self) -> int:
        """What the command line ends with when nothing stopped the run by force."""
        if self.counts["over_budget"]:
            return 3
        return 1 if self.counts["failed"] or self.counts["in_doubt"] or self.counts["pending"] else 0


def summarize(out: Path) -> Summary:
    """Count a run.

    Raises:
        JournalError: there is no run there, or its rows do not add up (then the journal is damaged).
    """
    header = read_header(out)
    with reading(out) as db:
        counts = count_by_status(db)
        ((rows,),) = db.execute("SELECT count(*) FROM items")
        paid, held = totals(db)
        requests = requests_sent(db)
    if sum(counts.values()) != rows:
        raise JournalError(f"{out}: {rows} rows, but the counts add up to {sum(counts.values())}.")
    return Summary(
        rows=rows,
        counts=counts,
        requests=requests,
        paid=paid,
        held=held,
        budget=header.options.budget,
        balance_before=header.balance_before,
        balance_after=header.balance_after,
        seconds=header.seconds,
        out=out,
    )


class Run:
    """A run and its tables.

    Attributes:
        folder: Where it is.
        stopped_by: What ended it before all rows were done, or None.
    """

    def __init__(self, folder: Path, stopped_by: LightmeterError | None = None) -> None:
        self.folder = folder
        self.stopped_by = stopped_by
        self._header = read_header(folder)

    @property
    def header(self) -> Header:
        """What was asked for, of which manifest."""
        return self._header

    @property
    def exit_code(self) -> int:
        """As the command line's."""
        if self.stopped_by is not None and not isinstance(self.stopped_by, AccessDenied):
            return self.stopped_by.exit_code
        return self.stopped_by.exit_code if self.stopped_by else self.summary().exit_code

    def summary(self) -> Summary:
        """The accounting, read anew."""
        return summarize(self.folder)

    def statement(self) -> Statement:
        """Where every credit went, read anew; `requests_frame` of the same module has it request by request."""
        return state_account(self.folder)

    def reasons(self) -> list[Reason]:
        """Why rows are not ok, most frequent first."""
        with reading(self.folder) as db:
            return [Reason(*row) for row in reasons(db)]

    def table(self, name: str) -> pa.Table:
        """A table as Arrow.

        Raises:
            UsageError: there is no table of that name.
        """
        return Dataset(self.folder).read(name)

    def sql(self, query: str, params: Sequence[Any] | None = None) -> pd.DataFrame:
        """DuckDB's answer over the tables, as an Arrow-backed DataFrame.

        Raises:
            UsageError: the query is wrong; the message is DuckDB's.
        """
        return _frame(queries.sql(self.folder, query, params))

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name in TABLES:
            return _frame(self.table(name))
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}; tables are {', '.join(TABLES)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *TABLES})

    def __repr__(self) -> str:
        summary = self.summary()
        stands = ", ".join(f"{rows} {status}" for status, rows in summary.counts.items() if rows)
        return f"Run({str(self.folder)!r}: {summary.rows} rows, {stands}, {summary.paid} credits paid)"


def _frame(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)
