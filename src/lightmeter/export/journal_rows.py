"""Reads the rows of the tables `assets`, `requests` and `prechecks` from a run's journal, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, TypeAlias

import pyarrow as pa

from lightmeter import sqlite
from lightmeter.journal.header import RunHeader
from lightmeter.journal.queries.export import SubmissionRange, asset_rows, finding_rows, request_rows
from lightmeter.journal.queries.latest_runs import credit_share
from lightmeter.tables.arrow.row_tables import ColumnValues, ConstantColumn, RowTables, to_timestamps

_ROWS_AT_ONCE: Final = 8192

_Columns: TypeAlias = "dict[str, tuple[Any, ...]]"


def journal_row_tables(
    db: sqlite.Connection, header: RunHeader, run: int, submissions: SubmissionRange, extra_types: Mapping[str, str]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield pairs (table name, Arrow table) with the rows of `assets`, `requests` and `prechecks` of a run.

    Each Arrow table has at most `_ROWS_AT_ONCE` rows, so that a name can come several times.

    Args:
        db: The run's journal. A database with the latest run of each item must be attached to it as `latest`.
        header: Id, options and manifest data of the run.
        run: Position of the run among the runs of the output folder, oldest first, from 0.
        submissions: Range of the requests to export. Only the first range of a run includes `prechecks`, with all rows.
        extra_types: Column → type name, for the manifest columns of all runs that lightmeter does not interpret.
    """
    row_tables = RowTables(extra_types)
    constants: dict[str, ColumnValues] = {"run_id": ConstantColumn(header.run_id)}
    for columns, count in _chunks(asset_rows(db, run, submissions)):
        yield "assets", row_tables.build("assets", {**columns, **constants, **_asset_columns(header, columns)}, count)
    for columns, count in _chunks(request_rows(db, submissions)):
        times = {name: to_timestamps(columns[name]) for name in ("sent_at", "answered_at")}
        yield "requests", row_tables.build("requests", {**columns, **constants, **times}, count)
    if submissions.after == 0:
        for columns, count in _chunks(finding_rows(db, run)):
            yield "prechecks", row_tables.build("prechecks", {**columns, **constants}, count)


def _chunks(cursor: sqlite.Cursor) -> Iterator[tuple[_Columns, int]]:
    """Yield the rows of a query in parts of at most `_ROWS_AT_ONCE` rows, as (column → values, number of rows)."""
    first = list(islice(cursor, 1))
    names = [column[0] for column in cursor.get_description()] if first else []
    remaining = chain(first, cursor)
    while rows := list(islice(remaining, _ROWS_AT_ONCE)):
        yield dict(zip(names, zip(*rows, strict=True), strict=True)), len(rows)


def _asset_columns(header: RunHeader, columns: _Columns) -> dict[str, ColumnValues]:
    prices = (columns[name] for name in ("paid", "sharers", "place", "paid_again", "paid_in_all", "charge_unreported"))
    return {
        "credits": list(map(_item_credits, *prices)),
        "features": ConstantColumn(list(header.options.features)),
        "backends": ConstantColumn(list(header.options.backends)),
        "answered_at": to_timestamps(columns["answered_at"]),
    }


def _item_credits(
    paid: int | None, sharers: int, place: int, again: int | None, paid_in_all: float | None, charge_unreported: int
) -> float | None:
    """Return the credits paid for an item (manifest row).

    The first of these rules that applies gives the result:

    - None if `charge_unreported` is 1;
    - `paid_in_all` if it is not None;
    - the item's share of `paid`, as `credit_share` computes it, plus `again`. A charge that is None counts as 0.

    Args:
        paid: Charge of the item's request; None if the item has none.
        sharers: Number of items in the request.
        place: Position of the item among the items of the request, from 0.
        again: Charge of a second request about this item alone; None if there is none.
        paid_in_all: Credits that all runs together paid for the item; None if the item is in one run only.
        charge_unreported: 1 if the answer of one of the item's requests names no charge, else 0.
    """
    if charge_unreported:
        return None
    if paid_in_all is not None:
        return paid_in_all
    return (credit_share(paid, sharers, place) if paid else 0.0) + (again or 0)
