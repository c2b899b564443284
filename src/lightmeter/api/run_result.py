"""The result of a run: its row and credit counts, and its tables, which can be queried in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lightmeter.api.next_steps import next_steps
from lightmeter.errors import JournalError, LightmeterError, UsageError
from lightmeter.html_fragments import counted, labeled_lines_as_html
from lightmeter.journal.header import is_balance_current, read_run_header
from lightmeter.journal.queries.charges import credit_totals, unreported_charges
from lightmeter.journal.queries.items import count_by_reason, count_by_status, count_rows
from lightmeter.journal.queries.submissions import requests_sent
from lightmeter.journal.store import open_read_only
from lightmeter.money.statement import Statement, read_statement
from lightmeter.money.wrong_rejections import ScreenEstimate, read_screen_estimate
from lightmeter.paths import local_path
from lightmeter.planning.plan_text import ReasonCount
from lightmeter.statistics.agreement import DEFAULT_THRESHOLD, Agreement, read_agreement
from lightmeter.statistics.share_estimates import Shares, read_shares
from lightmeter.tables.arrow.answer_schema import ANSWERS_PREFIX, table_name
from lightmeter.tables.arrow.schema import ALL_TABLES, TABLES
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.query import duckdb_query, named_queries
from lightmeter.tables.query.similar import similar
from lightmeter.tables.query.to_pandas import to_dataframe
from lightmeter.tables.remote.read import read_remote_table
from lightmeter.tables.remote.uris import is_uri, uri_name

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The row and credit counts of a run.

    Attributes:
        rows: Number of rows planned so far. If `planning_finished` is true, these are all rows of the manifest.
        counts: Status → number of rows; the numbers add up to `rows`.
        requests: Number of POST requests that the run has sent since its first start.
        paid: Credits paid. Requests whose answers name no charge count with the credits reserved for them.
        held: Credits that stay reserved for requests whose charge is not known.
        budget: Maximum credits that the run may spend; None means no limit.
        balance_before: Balance of the account before the first request, in credits; None if no request was sent, or
            if the run is free.
        balance_after: Balance of the account when it was last read, in credits; None if it was never read, or if the
            run is free.
        seconds: Running time in seconds, the sum over all starts of the run.
        out: The output folder.
        balance_is_current: Whether the balance was read after the last request.
        screen: What local back ends rejected (`--screen`), and an estimate of what they missed; None without
            `--screen`.
        planning_finished: Whether all rows of the manifest are read and checked. False while a run with `--stream` is
            still reading, or if it stopped before the end of the manifest.
        unreported: Number of answered requests whose answers name no charge. If it is above 0, `paid` is an upper
            bound.
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
    balance_is_current: bool = True
    screen: ScreenEstimate | None = None
    planning_finished: bool = True
    unreported: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as the JSON object that `lightmeter run --json` prints."""
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
            "planning_finished": self.planning_finished,
            **({"unreported_charges": self.unreported} if self.unreported else {}),
            **({} if self.screen is None else {"screen": self.screen.to_dict()}),
        }

    @property
    def exit_code(self) -> int:
        """Exit code of `lightmeter run`: 3 if rows are over the budget, 1 if rows failed or are not done, else 0."""
        if self.counts["over_budget"]:
            return 3
        left = sum(self.counts[status] for status in ("failed", "in_doubt", "pending"))
        return 1 if left or not self.planning_finished else 0


def output_folder(out: Path | str) -> Path:
    """Return the absolute path of an output folder.

    Raises:
        UsageError: `out` is empty, which would mean the current folder, or is no path.
    """
    if out == "" or not isinstance(out, str | PathLike):
        raise UsageError(f"{out!r} is no output folder.", hint='Give its path, such as "out/run"; "." is this folder.')
    return local_path(out)


def summarize(out: Path) -> RunSummary:
    """Return the row and credit counts of the run in the output folder `out`.

    Raises:
        JournalError: the folder holds no run, or the counts do not add up to its rows (the journal is damaged).
    """
    header = read_run_header(out)
    with open_read_only(out) as db, db:  # one transaction: `--stream` may add rows between two queries
        paid, held = credit_totals(db)
        summary = RunSummary(
            rows=count_rows(db),
            counts=count_by_status(db),
            requests=requests_sent(db),
            paid=paid,
            held=held,
            budget=header.options.budget,
            balance_before=None if header.is_free else header.balance_before,
            balance_after=None if header.is_free else header.balance_after,
            balance_is_current=is_balance_current(db),
            seconds=header.seconds,
            out=out,
            screen=read_screen_estimate(out),
            planning_finished=not header.planning_open,
            unreported=unreported_charges(db),
        )
    if (total := sum(summary.counts.values())) != summary.rows:
        raise JournalError(
            f"The journal in {out} is damaged: it has {summary.rows} rows, but their counts add up to {total}.",
            hint="Restore the folder from a backup, or run the manifest into a new folder.",
        )
    return summary


def must_have_tables(where: Path | str) -> None:
    """Raise an error if `where` is an output folder without tables. Otherwise a query would silently find no rows.

    A URI is not checked here, because reading it raises an error if it has no tables.

    Raises:
        UsageError: the folder has no tables; the hint names the command that writes them.
        JournalError: the folder has neither tables nor a run.
    """
    if isinstance(where, str) and is_uri(where):
        return
    folder = local_path(where)
    if any(Dataset(folder).parts(table) for table in TABLES):
        return
    if answered := summarize(folder).counts["ok"]:
        raise UsageError(
            f"{folder} has no tables yet; its journal holds the answers of {counted(answered, 'row', 'rows')}.",
            hint=f"Write the tables from the journal; no request is sent: lightmeter rebuild {folder}",
        )
    raise UsageError(
        f"{folder} has no tables yet, and no row is answered.",
        hint=f"See what is left to do: lightmeter status {folder}. To write empty tables: lightmeter rebuild {folder}",
    )


class Tables:
    """The tables in an output folder or at a URI: `tables.tags` is a DataFrame, `tables.table("tags")` an Arrow table.

    `lightmeter.open(URI)` makes such an object, and so does `Tables(where)`. For an output folder, `lightmeter.open`
    makes a `Run`, which has the same tables. An attribute such as `tags` reads its table whenever it is used.

    Args:
        where: An output folder, or a URI to which `lightmeter rebuild --to` has written tables.

    Attributes:
        where: The output folder as an absolute `Path`, or the URI as text.
    """

    items: pd.DataFrame
    assets: pd.DataFrame
    tags: pd.DataFrame
    colors: pd.DataFrame
    nsfw: pd.DataFrame
    descriptions: pd.DataFrame
    faces: pd.DataFrame
    texts: pd.DataFrame
    brands: pd.DataFrame
    errors: pd.DataFrame
    requests: pd.DataFrame
    prechecks: pd.DataFrame
    embeddings: pd.DataFrame
    reviews: pd.DataFrame

    def __init__(self, where: Path | str) -> None:
        self.where = where if isinstance(where, str) and is_uri(where) else local_path(where)

    def table(self, name: str) -> pa.Table:
        """Return the table `name`, such as `tags`, as an Arrow table.

        It has at least one chunk for each of its Parquet files. `pl.from_arrow(table, rechunk=False)` makes a Polars
        DataFrame from it that shares the memory of numeric columns; for text, Polars needs 16 more bytes per value.

        Raises:
            UsageError: there is no table of that name, or there are no tables at all.
        """
        must_have_tables(self.where)
        if isinstance(self.where, Path):
            return Dataset(self.where).read(name)
        return read_remote_table(self.where, name)

    def ask(self, question: str, **parameters: Any) -> pa.Table:
        """Run a predefined query, such as `top_tags`, and return its result as an Arrow table.

        Args:
            question: Name of the query: a function of `lightmeter.tables.query.named_queries`.
            parameters: Keyword arguments of that function.

        Raises:
            UsageError: there is no query of that name.
        """
        if question not in named_queries.SQL:
            raise UsageError(
                f"There is no query named {question!r}.", hint=f"Choose one of: {', '.join(sorted(named_queries.SQL))}."
            )
        must_have_tables(self.where)
        answer: pa.Table = getattr(named_queries, question)(self.where, **parameters)
        return answer

    def similar(self, item: str, *, most: int = 10, model: str | None = None) -> pa.Table:
        """Return the items most similar to `item` as an Arrow table, nearest first.

        Columns: item_id, url, frame, similarity (-1 to 1). See `lightmeter.tables.query.similar`.

        Args:
            item: The item to compare with: its `item_id`, or its URL or path as in the manifest.
            most: Maximum number of rows.
            model: The model whose embeddings are compared; None if the item has embeddings of only one model.

        Raises:
            UsageError: there are no tables, no embeddings, no such item, or the item has no embedding of that model.
        """
        must_have_tables(self.where)
        return similar(self.where, item, most=most, model=model)

    def sql(self, query: str, params: Sequence[Any] | None = None) -> pd.DataFrame:
        """Run a DuckDB query over the tables and return an Arrow-backed DataFrame.

        `params` holds the values of the placeholders `?` in the query; None if the query has none.

        Raises:
            UsageError: DuckDB rejects the query; the message is DuckDB's.
        """
        must_have_tables(self.where)
        return to_dataframe(duckdb_query.sql(self.where, query, params))

    if not TYPE_CHECKING:  # a type checker knows the tables by the annotations above

        def __getattr__(self, name: str) -> pd.DataFrame:
            if name in ALL_TABLES or name.startswith(ANSWERS_PREFIX):
                return to_dataframe(self.table(name))
            raise AttributeError(
                f"{type(self).__name__!r} has no attribute {name!r}; tables are {', '.join(ALL_TABLES)}"
            )

    def __dir__(self) -> list[str]:
        tables = Dataset(self.where).tables() if isinstance(self.where, Path) else ALL_TABLES
        return sorted({*super().__dir__(), *tables})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({uri_name(str(self.where))!r})"


class Run(Tables):
    """A run in an output folder: its credits, its counts and its tables. `run`, `resume` and `open` return it.

    Attributes:
        folder: The output folder.
        stopped_by: The error that ended the run before all rows were done, or None.
        header: Options, manifest and balances of the run, as its journal stores them.
    """

    def __init__(self, folder: Path, stopped_by: LightmeterError | None = None) -> None:
        super().__init__(folder)
        self.folder = folder
        self.stopped_by = stopped_by
        self.header = read_run_header(folder)

    @property
    def exit_code(self) -> int:
        """Exit code of `lightmeter run`: `stopped_by.exit_code` if an error stopped it, else `summary().exit_code`."""
        return self.summary().exit_code if self.stopped_by is None else self.stopped_by.exit_code

    @property
    def answers(self) -> pd.DataFrame:
        """The answers to the user's own question about each picture (option `ask`), as an Arrow-backed DataFrame.

        Raises:
            UsageError: the run has no option `ask`, or its tables are not written.
        """
        ask = self.header.options.ask
        if ask is None:
            raise UsageError(
                "This run has no question (--ask).",
                hint="Run the manifest with one: lightmeter run MANIFEST --out DIR --ask FILE",
            )
        return to_dataframe(self.table(table_name(ask)))

    def summary(self) -> RunSummary:
        """Return the current row and credit counts from the journal."""
        return summarize(self.folder)

    def next_steps(self) -> list[str]:
        """Return the steps that are left to do with the run, each a sentence with a command; at least one sentence."""
        return next_steps(self.folder)

    def statement(self) -> Statement:
        """Return an account of the run's credits: predicted, paid, reserved and saved, with the account's balances."""
        return read_statement(self.folder)

    def screen_estimate(self, positive: str | None = None) -> ScreenEstimate | None:
        """Estimate how many rows the free local back ends (option `screen`) rejected wrongly; None without that option.

        `positive` is an SQL condition over the paid answers. A rejected row that meets it was rejected wrongly. None
        means the option `screen_positive`, or if that is not set, the option `screen_rule`.

        Raises:
            SettingsError: the condition is wrong.
        """
        return read_screen_estimate(self.folder, positive)

    def shares(self, table: str = "tags", *, least: float | None = None, most: int = 20) -> Shares:
        """Estimate what share of the whole manifest has each tag or NSFW label, from the rows that are answered.

        Each share has a 95 % confidence interval if the option `sample` is `random` or `stratified:COLUMN`.

        Args:
            table: `tags` or `nsfw`.
            least: A tag counts if its score is at least this (default 0), an NSFW label if its severity is (default
                0.5).
            most: Maximum number of tags or labels; the most frequent ones are returned.

        Raises:
            UsageError: `table` is neither of the two, or there are no tables.
        """
        must_have_tables(self.where)
        return read_shares(self.folder, table, least=least, most=most)

    def agreement(
        self, *, min_score: float = 0.0, thresholds: float | Mapping[str, float] = DEFAULT_THRESHOLD
    ) -> Agreement:
        """Compare the back ends' answers; return also what dropping a feature of a back end would save and lose.

        Args:
            min_score: Tags and brands with a lower score do not count; those without a score always count.
            thresholds: NSFW severity from which a picture counts as unsafe: one number for all, or back end → severity.

        Raises:
            UsageError: there are no tables.
        """
        must_have_tables(self.where)
        return read_agreement(self.folder, min_score=min_score, thresholds=thresholds)

    def reasons(self) -> list[ReasonCount]:
        """Return why rows do not have the status `ok`: each reason with its number of rows, most frequent first."""
        with open_read_only(self.folder) as db:
            return [ReasonCount(*row) for row in count_by_reason(db)]

    def __repr__(self) -> str:
        summary = self.summary()
        counts = ", ".join(f"{rows} {status}" for status, rows in summary.counts.items() if rows)
        rows, paid = counted(summary.rows, "row", "rows"), counted(summary.paid, "credit", "credits")
        return f"Run({str(self.folder)!r}: {rows}, {counts}, {'free' if self.header.is_free else f'{paid} paid'})"

    def _repr_html_(self) -> str:
        summary = self.summary()
        rows = [f"{status.replace('_', ' ')}  {count:,}" for status, count in summary.counts.items() if count]
        cap = "" if summary.budget is None else f" of a budget of {summary.budget:,}"
        money = [f"credits paid  {summary.paid:,}{cap}", f"credits held  {summary.held:,}"]
        rows += ["price  free (local models)"] if self.header.is_free else money
        stopped = [] if self.stopped_by is None else [f"stopped by  {self.stopped_by}"]
        steps = (f"next  {step}" for step in self.next_steps())
        return labeled_lines_as_html(f"{self.folder}: {summary.rows:,} rows", (*rows, *stopped, *steps))
