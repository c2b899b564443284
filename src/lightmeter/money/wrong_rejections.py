"""Estimate how many rows the free local back ends (`--screen`) rejected wrongly.

A random sample of the rejected rows is sent and paid for. A rejected row was rejected wrongly if its paid answer
matches a condition. The share of such rows in the sample is the estimate, with a confidence interval.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightmeter.confidence_intervals import ShareEstimate, estimate_share
from lightmeter.errors import UsageError
from lightmeter.journal.commands.screen_rows import SCREEN_META, ScreenOutcome, audited_items
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.store import open_read_only
from lightmeter.options import Options
from lightmeter.tables.query.duckdb_query import QuerySession
from lightmeter.tables.query.row_condition import RowCondition, parse_condition
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES


@dataclass(frozen=True, slots=True)
class ScreenEstimate:
    """What the screen of a run (local back ends, `--screen`) rejected, and an estimate of what it rejected wrongly.

    A random *sample* of the rejected rows is sent and paid for, to find out what the screen missed.

    Attributes:
        outcome: Numbers of rows that the screen passed and rejected, and of rows in the sample.
        positive: SQL condition over the paid answers. A rejected row whose answer matches it was rejected wrongly.
        answered: Number of rows of the sample with an answer.
        positives: Number of rows of the sample whose answer matches `positive`.
        share: Estimated share of all rejected rows that match `positive`, 0 to 1, with its 95 % Wilson interval.
            Without answers, the interval is 0 to 1.
        problem: Why there is no estimate, as a sentence; None if there is one.
    """

    outcome: ScreenOutcome
    positive: str
    answered: int
    positives: int
    share: ShareEstimate
    problem: str | None = None

    @property
    def rows(self) -> ShareEstimate:
        """Estimated number of rows that the screen rejected wrongly, with the bounds of its 95 % confidence interval.

        A row was rejected wrongly if its paid answer would match the SQL condition `positive`.
        """
        return ShareEstimate(*(bound * self.outcome.rejected for bound in self.share))

    def __str__(self) -> str:
        return f"{self.outcome.sentence}\n{self.sentence}"

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; `missed_share` and `missed_rows` are null if there is no estimate."""
        known = self.problem is None
        return {
            **asdict(self.outcome),
            "positive": self.positive,
            "answered": self.answered,
            "positives": self.positives,
            "missed_share": self.share._asdict() if known else None,
            "missed_rows": self.rows._asdict() if known else None,
            "problem": self.problem,
        }

    @property
    def sentence(self) -> str:
        """A sentence for the user: the estimated number of wrongly rejected rows, or why there is no estimate."""
        if self.problem is not None:
            return self.problem
        share, rows = self.share, self.rows
        return (
            f"{self.positives} of {self.answered} answered rows of the audit match {self.positive}: of all "
            f"{self.outcome.rejected} rejected rows about {100 * share.share:.2g} % or {rows.share:.0f} rows "
            f"({100 * share.low:.2g} to {100 * share.high:.2g} %, {rows.low:.0f} to {rows.high:.0f} rows, "
            "with 95 % confidence)"
        )


def read_screen_estimate(out: Path, positive: str | None = None) -> ScreenEstimate | None:
    """Estimate how many rows the screen (`--screen`) of a run rejected wrongly; return None if the run has no screen.

    A random sample of the rejected rows is paid for and analyzed. A row of the sample was rejected wrongly if its
    answer matches the condition `positive`.

    Args:
        out: The output folder.
        positive: SQL condition over the tables of paid answers. None means the run's option `screen_positive`. If that
            is not set either, it means the condition that rows must match to pass the screen.

    Raises:
        JournalError: the folder holds no run.
        SettingsError: the given condition is wrong.
    """
    with open_read_only(out) as db:
        meta = get_meta(db)
        outcome = ScreenOutcome.from_json(meta.get(SCREEN_META))
        if outcome is None:
            return None
        options, items = Options.model_validate_json(meta["options"]), audited_items(db)
    condition = parse_condition(positive or options.screen_positive or outcome.rule, "screen-positive")
    answered, positives, problem = 0, 0, _problem(outcome, condition, options)
    if problem is None:
        try:
            answered, positives = _count(out, condition, items)
        except UsageError as error:
            problem = f"The condition cannot be used: {error}"
        else:
            problem = None if answered or not outcome.rejected else "No row of the audit is answered yet."
    share = estimate_share(positives, answered, max(outcome.rejected, answered))
    return ScreenEstimate(outcome, condition.sql, answered, positives, share, problem)


def _problem(outcome: ScreenOutcome, condition: RowCondition, options: Options) -> str | None:
    if not outcome.rejected:
        return "The screen rejected no row."
    if not outcome.audited:
        return "What the screen missed is unknown: no rejected row is audited."
    results = set(condition.tables) & {*FEATURES, *EXTRA_FEATURES}
    if missing := sorted(results - set(options.features or FEATURES)):
        return (
            f"What the screen missed is unknown: the run does not request {', '.join(missing)}, which the condition "
            "reads. Give one that reads its answers: --screen-positive SQL"
        )
    return None


def _count(out: Path, condition: RowCondition, items: list[str]) -> tuple[int, int]:
    """Return (number of `items` with an answer, number of these whose answer matches `condition`).

    Args:
        out: The folder of the run.
        condition: SQL condition over the tables of the run.
        items: The ids of the items.
    """
    query = (
        "SELECT count(*) AS answered, count(*) FILTER (matches) AS positives "  # noqa: S608 (the user's own condition)
        f"FROM ({condition.query}) WHERE item_id IN (SELECT unnest($items))"
    )
    with QuerySession(out) as session:
        (row,) = session.ask(query, {"items": items}).to_pylist()
    return row["answered"], row["positives"]
