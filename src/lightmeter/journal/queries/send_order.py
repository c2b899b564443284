"""Queries on the order in which rows are sent, and on the rows that a budget has bought in that order.

The population of a sample is the rows that can be analyzed: all but skipped rows and duplicates. A stratum is the rows
with the same value in a column of the manifest; rows without a value are a stratum, whose value is None. A video whose
frames are sent in its place is one row too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import IS_ROW, SEND_ORDER

_IS_IN_POPULATION: Final = f"""
{IS_ROW} AND status NOT IN ('skipped', 'duplicate') AND seq NOT IN (SELECT seq FROM gone)
"""  # noqa: S608 (constant expressions)


class OrderedRow(NamedTuple):
    """What decides on the place of a manifest row in the send order.

    Attributes:
        seq: Number of the row.
        identity: Canonical URL or path; None for a row without an image or video.
        perceptual_hash: 64 bits; None if unknown.
        value: Value of the column that defines the strata; None without one.
        in_population: Whether the row can be analyzed and is no duplicate.
    """

    seq: int
    identity: str | None
    perceptual_hash: int | None
    value: str | None
    in_population: bool


class StratumCount(NamedTuple):
    """Number of rows of a plan to be sent with the same value of a column.

    Attributes:
        value: The value; None for rows without one.
        rows: Number of rows to be sent.
        low: How many of the rows a budget pays for, at the upper price of each row.
        high: How many of the rows a budget pays for, at the lower price of each row.
    """

    value: str | None
    rows: int
    low: int
    high: int


def stratum_sql(column: str | None) -> str:
    """Return SQL for a row's value in a manifest column; NULL if `column` is None.

    Its one placeholder `?` takes `column`.
    """
    if column == "kind":
        return "iif(? = 'kind', kind, NULL)"
    return "(SELECT nullif(CAST(value AS TEXT), '') FROM json_each(extra) WHERE key = ?)"


def ordered_rows(db: sqlite.Connection, column: str | None) -> Iterator[OrderedRow]:
    """Yield all rows of the manifest in its order, with their values in `column` (None: without values)."""
    query = (
        f"SELECT seq, identity, perceptual_hash, {stratum_sql(column)}, {_IS_IN_POPULATION} "  # noqa: S608
        f"FROM items WHERE {IS_ROW} ORDER BY seq"
    )
    for seq, identity, bits, value, in_population in db.execute(query, (column,)):
        yield OrderedRow(seq, identity, None if bits is None else bits % (1 << 64), value, bool(in_population))


def count_affordable(db: sqlite.Connection, column: str, low: int, high: int) -> list[StratumCount]:
    """Return, for each value of a column, how many rows with the value a budget pays for; most frequent value first.

    Args:
        db: The journal.
        column: The column of the manifest.
        low: Number of rows, in the send order, that the budget pays for at their upper prices.
        high: Number of rows that the budget pays for at their lower prices.
    """
    query = (
        "SELECT value, count(*) AS rows, sum(place <= ?), sum(place <= ?) FROM ("  # noqa: S608
        f"SELECT {stratum_sql(column)} AS value, row_number() OVER (ORDER BY {SEND_ORDER}) AS place FROM items "
        f"WHERE status = 'pending' AND {IS_ROW}) GROUP BY value ORDER BY rows DESC, value"
    )
    return [StratumCount(*row) for row in db.execute(query, (low, high, column))]


def count_population(db: sqlite.Connection, column: str | None) -> dict[str | None, int]:
    """Count the rows of a plan that can be analyzed, all but skipped rows and duplicates, by their value in `column`.

    Return value → number of rows; None stands for no value. Without a column, None → number of all these rows.
    """
    query = f"SELECT {stratum_sql(column)}, count(*) FROM items WHERE {_IS_IN_POPULATION} GROUP BY 1"  # noqa: S608
    return dict(db.execute(query, (column,)))


def sent_rows(db: sqlite.Connection, column: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield (item_id, value of the column) of the rows that were sent, in the send order, up to the first unsent row.

    Rows that no budget could pay for, because of `--max-at-risk` or an unknown upper price, count as sent. Requests
    beyond the first unsent row are left out: they would make the sample depend on prices and on answer times.
    """
    query = f"""
    SELECT item_id, {stratum_sql(column)} FROM items WHERE {_IS_IN_POPULATION} AND {SEND_ORDER} < coalesce(
        (SELECT min({SEND_ORDER}) FROM items WHERE {IS_ROW} AND (status = 'pending'
         OR (status = 'over_budget' AND reason NOT IN ('at_risk', 'no_bound')))), 1 << 62)
    ORDER BY {SEND_ORDER}
    """  # noqa: S608 (constant expressions)
    yield from db.execute(query, (column,))
