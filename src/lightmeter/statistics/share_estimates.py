"""Estimates the shares of tags and of NSFW content in the whole manifest from the rows that a run has paid for.

The population is the images and videos that can be analyzed; skipped rows and duplicates do not count. If rows were
chosen at random or by strata, each share has a 95 % confidence interval: see `lightmeter.confidence_intervals`. If they
were chosen by order or diversity, there is no interval. Rows without an answer are left out. This assumes that they are
like the answered rows (of the same stratum, if there are strata).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from lightmeter.confidence_intervals import StratumSample, estimate_share, estimate_stratified_share
from lightmeter.errors import UsageError
from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.items import count_by_reason
from lightmeter.journal.queries.send_order import count_population, population_rows, sent_rows
from lightmeter.journal.store import open_read_only
from lightmeter.options import Options
from lightmeter.statistics.population_table import population_table
from lightmeter.tables.query.duckdb_query import TablesSource, open_session

ANY_LABEL: Final = "any label"
"""Name of the `Share` that counts the items with a high NSFW severity for any label except `sfw` (harmless)."""

_SHARES: Final[dict[str, pa.DataType]] = {
    "name": pa.string(),
    "items": pa.int64(),
    "share": pa.float64(),
    "low": pa.float64(),
    "high": pa.float64(),
}

_WAS_SENT: Final = "status IN ('ok', 'failed', 'in_doubt')"

_IS_BEFORE_UNSENT: Final = """place < coalesce((SELECT min(place) FROM known WHERE status IS NULL OR status = 'pending'
    OR (status = 'over_budget' AND reason NOT IN ('at_risk', 'no_bound'))), 1::BIGINT << 62)"""

_ANSWERED: Final = """
WITH known AS (SELECT population.*, status, reason FROM population LEFT JOIN assets USING (item_id)),
reached AS (SELECT * FROM known WHERE {is_reached}), answered AS (
  SELECT item_id, stratum FROM reached WHERE status = 'ok' AND (
    item_id NOT IN (SELECT item_id FROM errors WHERE item_id IS NOT NULL)
    OR item_id IN (SELECT item_id FROM {table} WHERE item_id IS NOT NULL))
)
"""
"""SQL with two subqueries, `reached` and `answered`.

`reached` has the rows that were sent; of a random sample, only those before the first row in the order of sending that
has no outcome in the tables. `answered` has the rows of `reached` that have an answer.
"""

_COUNTS: Final = "SELECT stratum, count(*) AS rows FROM answered GROUP BY stratum"

_ENTRIES: Final = {
    "tags": "SELECT name, item_id FROM tags WHERE name IS NOT NULL AND (score IS NULL OR score >= $least)",
    "nsfw": "SELECT unnest([label, $any]) AS name, item_id FROM nsfw WHERE label <> 'sfw' AND severity >= $least",
}

_POSITIVES: Final = """
, positives AS (
  SELECT name, stratum, count(DISTINCT item_id) AS items FROM ({entries}) JOIN answered USING (item_id) GROUP BY ALL
), top AS (SELECT name, sum(items) AS total FROM positives GROUP BY name ORDER BY total DESC, name LIMIT $most)
SELECT name, stratum, items FROM positives JOIN top USING (name) ORDER BY total DESC, name, stratum
"""


@dataclass(frozen=True, slots=True)
class Share:
    """Share of the images and videos of a manifest that have a tag or an NSFW label.

    Attributes:
        name: The tag or label.
        items: Number of answered rows that have the tag or label.
        share: Estimated share, 0 to 1. Without an interval, this is simply the share among the answered rows.
        low: Lower end of the 95 % confidence interval; None if there is no interval.
        high: Upper end of the 95 % confidence interval; None if there is no interval.
    """

    name: str
    items: int
    share: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of tags or NSFW labels, most frequent first, and how they were estimated.

    Attributes:
        sample: The value of the run's option `sample`, by which the rows were chosen.
        population: Number of images and videos that can be analyzed; duplicates do not count.
        sampled: Number of rows that the budget was spent on, including rows that have no answer.
        answered: Number of rows that have an answer; the shares are computed from them.
        rows: One `Share` for each tag or label.
        screened: Number of images and videos that local back ends rejected (`--screen`). They are not part of
            `population`.
    """

    sample: str
    population: int
    sampled: int
    answered: int
    rows: tuple[Share, ...]
    screened: int = 0

    @property
    def note(self) -> str:
        """How the shares were estimated, and how rows without an answer count, as text for the user."""
        if self.screened:
            return (
                f"The shares are those of {self.answered:,} answered rows. They are none of the whole manifest: local "
                f"back ends rejected {self.screened:,} further rows for what they show."
            )
        if self.answered == self.population:
            return f"All {self.population:,} images and videos that can be analyzed are answered: the shares are exact."
        if self.sample in ("order", "diverse"):
            return (
                f"The {self.answered:,} answered rows of {self.population:,} were chosen by the rule {self.sample}, "
                "not at random: the shares are theirs alone, and no interval for the whole manifest would be honest."
            )
        missing = self.sampled - self.answered
        text = (
            f"Estimated for all {self.population:,} images and videos that can be analyzed from {self.answered:,} "
            f"answered rows, chosen by the rule {self.sample}; with 95 % confidence intervals."
        )
        if not missing:
            return text
        return f"{text} {missing:,} rows without an answer are left out, which assumes that they are like the others."

    def __str__(self) -> str:
        lines = (
            f"  {row.name:<24} {row.items:>8} {row.share:>8.1%}"
            + ("" if row.low is None or row.high is None else f"  {row.low:.1%} to {row.high:.1%}")
            for row in self.rows
        )
        return "\n".join((self.note, *lines))

    __repr__ = __str__

    def table(self) -> pa.Table:
        """Return the shares as an Arrow table with the columns name, items, share, low, high."""
        return pa.Table.from_pylist([asdict(row) for row in self.rows], schema=pa.schema(_SHARES))


def read_shares(
    out: Path, table: str, *, least: float | None = None, most: int = 20, where: TablesSource | None = None
) -> Shares:
    """Estimate what share of the whole manifest has each tag or NSFW label, from the answered rows of a run.

    Args:
        out: The output folder of the run.
        table: `tags` or `nsfw`.
        least: A tag counts if its score is at least this (default 0), an NSFW label if its severity is (default 0.5).
        most: Maximum number of tags or labels; the most frequent ones are returned.
        where: An open session for the tables in `out`; None opens one.

    Raises:
        UsageError: `table` is neither of the two, the run did not request this feature, or there are no tables.
        JournalError: the folder holds no run.
    """
    if table not in _ENTRIES:
        raise UsageError(f"There are no shares of {table!r}.", hint=f"Choose one of: {', '.join(_ENTRIES)}.")
    options = read_run_header(out).options
    if options.features and table not in options.features:
        raise UsageError(f"The run did not request {table}.", hint=f"It requested {', '.join(options.features)}.")
    is_random = options.sample not in ("order", "diverse")
    with open_read_only(out) as db:
        population = count_population(db, options.sample_column)
        codes = {value: code for code, value in enumerate(population)}
        screened = sum(rows for _, reason, rows, _ in count_by_reason(db) if reason == "screened")
        items = sent_rows(db, options.sample_column) if is_random else population_rows(db)
        sent_or_all = population_table(items, codes)
    answered = _ANSWERED.format(is_reached=_IS_BEFORE_UNSENT if is_random else _WAS_SENT, table=table)
    with open_session(where or out) as session:
        session.register("population", sent_or_all)
        (sampled,) = session.ask(f"{answered} SELECT count(*) AS n FROM reached").to_pylist()  # noqa: S608
        counts = {row["stratum"]: row["rows"] for row in session.ask(answered + _COUNTS).to_pylist()}
        least = {"tags": 0.0, "nsfw": 0.5}[table] if least is None else least
        values = {"least": least, "most": most} | ({"any": ANY_LABEL} if table == "nsfw" else {})
        rows = session.ask(answered + _POSITIVES.format(entries=_ENTRIES[table]), values).to_pylist()
    found: dict[str, dict[int, int]] = {ANY_LABEL: {}} if table == "nsfw" and counts else {}
    for row in rows:
        found.setdefault(row["name"], {})[row["stratum"]] = row["items"]
    return Shares(
        sample=options.sample,
        population=sum(population.values()),
        sampled=sampled["n"],
        answered=sum(counts.values()),
        rows=tuple(
            _share(name, positives, counts, list(population.values()), options, has_interval=not screened)
            for name, positives in found.items()
        ),
        screened=screened,
    )


def _share(
    name: str,
    positives: dict[int, int],
    counts: dict[int, int],
    populations: list[int],
    options: Options,
    *,
    has_interval: bool,
) -> Share:
    """Return the estimated share of the manifest's rows that have one tag or label.

    Args:
        name: The tag or label.
        positives: Stratum (its position in `populations`) → number of answered rows that have the tag or label.
        counts: Stratum (as in `positives`) → number of answered rows.
        populations: Number of rows of each stratum, answered or not.
        options: The options of the run.
        has_interval: False if the share gets no confidence interval, because a screen has rejected rows.
    """
    items, answered, population = sum(positives.values()), sum(counts.values()), sum(populations)
    if not has_interval:
        return Share(name, items, items / answered, None, None)
    if options.sample_column is not None:
        estimate = estimate_stratified_share(
            [
                StratumSample(positives.get(number, 0), counts.get(number, 0), size)
                for number, size in enumerate(populations)
            ]
        )
    elif options.sample == "random" or answered == population:
        estimate = estimate_share(items, answered, population)
    else:
        return Share(name, items, items / answered, None, None)
    return Share(name, items, *estimate)
