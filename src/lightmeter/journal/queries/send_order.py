"""Queries on the order in which rows are sent, and on the rows that a budget pays for in that order.

The population of a sample is the rows that can be analyzed: all but skipped rows and duplicates. A stratum is the set
of all rows with the same value in a column of the manifest. Rows without a value form a stratum of their own, with the
value None. A video whose frames are sent in its place counts as one row.
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
    """The properties of a manifest row that decide on its place in the send order.

    Attributes:
        seq: Number of the row in the manifest, from 0.
        identity: URL or path in canonical form; None for a row without an image or video.
        perceptual_hash: 64 bits, nearly equal for images that look the same; None if unknown.
        value: The row's value in the column that defines the strata; None without a value.
        in_population: Whether the row can be analyzed and is no duplicate.
    """

    seq: int
    identity: str | None
    perceptual_hash: int | None
    value: str | None
    in_population: bool


class StratumCount(NamedTuple):
    """How many rows with one value in a manifest column are to be sent, and how many of them a budget pays for.

    Attributes:
        value: The value; None for rows without a value.
        rows: Number of rows to be sent.
        low: Number of these rows that the budget pays for if each row costs the upper limit of its price.
        high: Number of these rows that the budget pays for if each row costs the lower limit of its price.
    """

    value: str | None
    rows: int
    low: int
    high: int


def stratum_sql(column: str | None) -> str:
    """Return an SQL expression for a row's value, as text, in the manifest column `column`.

    The expression has one placeholder `?`, to which `column` must be bound. The column `kind` is the media type. The
    value is NULL if `column` is None or the row has no value.
    """
    if column == "kind":
        return "iif(? = 'kind', kind, NULL)"
    return "(SELECT nullif(CAST(value AS TEXT), '') FROM json_each(extra) WHERE key = ?)"


def ordered_rows(db: sqlite.Connection, column: str | None) -> Iterator[OrderedRow]:
    """Yield all rows of the manifest in the manifest's order, with their values in `column`.

    If `column` is None, all values are None.
    """
    query = (
        f"SELECT seq, identity, perceptual_hash, {stratum_sql(column)}, {_IS_IN_POPULATION} "  # noqa: S608
        f"FROM items WHERE {IS_ROW} ORDER BY seq"
    )
    for seq, identity, bits, value, in_population in db.execute(query, (column,)):
        yield OrderedRow(seq, identity, None if bits is None else bits % (1 << 64), value, bool(in_population))


def count_affordable(db: sqlite.Connection, column: str, low: int, high: int) -> list[StratumCount]:
    """Return, for each value of a column, how many rows are to be sent and how many of them a budget pays for.

    The value with most rows comes first.

    Args:
        db: The journal.
        column: The column of the manifest.
        low: Number of rows, from the start of the send order, that the budget pays for if each costs the upper limit of
            its price.
        high: Number of rows that the budget pays for if each costs the lower limit of its price.
    """
    query = (
        "SELECT value, count(*) AS rows, sum(place <= ?), sum(place <= ?) FROM ("  # noqa: S608
        f"SELECT {stratum_sql(column)} AS value, row_number() OVER (ORDER BY {SEND_ORDER}) AS place FROM items "
        f"WHERE status = 'pending' AND {IS_ROW}) GROUP BY value ORDER BY rows DESC, value"
    )
    return [StratumCount(*row) for row in db.execute(query, (low, high, column))]


def count_population(db: sqlite.Connection, column: str | None) -> dict[str | None, int]:
    """Count the rows of a plan that can be analyzed, by their value in `column`.

    Skipped rows and duplicates do not count.

    Return value → number of rows. Rows without a value have the key None. If `column` is None, all rows do.
    """
    query = f"SELECT {stratum_sql(column)}, count(*) FROM items WHERE {_IS_IN_POPULATION} GROUP BY 1"  # noqa: S608
    return dict(db.execute(query, (column,)))


def population_rows(db: sqlite.Connection) -> Iterator[tuple[str, None]]:
    """Yield (item_id, None) of the rows that can be analyzed, in any order; skipped rows and duplicates are left out.

    None is the value of all rows in `count_population(db, None)`.
    """
    yield from db.execute(f"SELECT item_id, NULL FROM items WHERE {_IS_IN_POPULATION}")  # noqa: S608


def sent_rows(db: sqlite.Connection, column: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield (item_id, value in `column`) of the rows before the first unsent row, in the send order.

    The value is None if the row has none, or if `column` is None. A row is unsent if it is pending or over budget. Rows
    that were never affordable, because of `--max-at-risk` or an unknown upper price, do not count as unsent.

    The rows yielded are a sample of all rows that can be analyzed; skipped rows and duplicates are left out. Rows after
    the first unsent row are left out even if they were sent: with them, the sample would depend on prices and answer
    times.
    """
    query = f"""
    SELECT item_id, {stratum_sql(column)} FROM items WHERE {_IS_IN_POPULATION} AND {SEND_ORDER} < coalesce(
        (SELECT min({SEND_ORDER}) FROM items WHERE {IS_ROW} AND (status = 'pending'
         OR (status = 'over_budget' AND reason NOT IN ('at_risk', 'no_bound')))), 1 << 62)
    ORDER BY {SEND_ORDER}
    """  # noqa: S608 (constant expressions)
    yield from db.execute(query, (column,))
