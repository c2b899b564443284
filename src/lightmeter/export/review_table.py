"""Writes the table `reviews` from `reviews.sqlite`: the decisions of people to keep or reject items, in one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lightmeter import __version__
from lightmeter.errors import TablesError
from lightmeter.facts.columns import REVIEWS
from lightmeter.journal.reviews import (
    ReviewChanges,
    ReviewDecision,
    ReviewMark,
    changed_reviews,
    has_reviews,
    review_chunks,
    review_mark,
)
from lightmeter.tables.arrow.row_tables import ColumnValues, build_table, to_timestamps
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.dataset import Dataset, open_parts
from lightmeter.tables.parts import read_batches, read_schema
from lightmeter.tables.query.duckdb_catalog import CATALOG, write_catalog

_VERSION_KEY: Final = "reviews"
"""Key in the metadata (lineage) of the Parquet file. Its value is the version of the decisions in the file."""

MAX_CHANGES: Final = 10_000
"""If more items have changed, all decisions are read from SQLite again. Else the old file is copied with changes."""


def export_reviews(out: Path) -> None:
    """Write the table `reviews` of the run in `out`. Do nothing if it already has the newest decisions.

    Raises:
        TablesError: The table cannot be written. The decisions stay in `reviews.sqlite`.
        JournalError: `reviews.sqlite` cannot be read.
    """
    dataset = Dataset(out)
    if not has_reviews(out) or _is_current(dataset):
        return
    dataset.check_version()
    try:
        with dataset.locked():
            is_new = not dataset.parts(REVIEWS)
            if not _update_table(dataset):
                write_reviews(dataset)
            if is_new and (out / CATALOG).exists():
                write_catalog(out)
    except OSError as error:
        raise TablesError(
            f"The decisions cannot be written to a table: {error}.",
            hint=f"They are kept in {out / 'reviews.sqlite'}. Make room, then: lightmeter rebuild {out}",
        ) from error


def write_reviews(dataset: Dataset) -> int:
    """Write the whole table `reviews` from `reviews.sqlite`, and return its number of rows.

    If there are no decisions, write nothing and return 0. Call this function only inside `with dataset.locked()`, so
    that no other process replaces newer decisions.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
        OSError: The table cannot be written.
    """
    if not has_reviews(dataset.out):
        return 0
    chunks = review_chunks(dataset.out)
    mark, first = next(chunks)
    return _write_table(
        dataset, mark, (_arrow_table(reviews) for reviews in chain([first], (each[1] for each in chunks)))
    )


def _update_table(dataset: Dataset) -> bool:
    """Replace the table `reviews` in `dataset` by a copy with the newer decisions; return whether that was possible.

    It is not possible if the table is missing or broken, if it has other columns than today's version, or if more than
    `MAX_CHANGES` items have changed. Copying a million decisions takes less than a second. Reading them from SQLite
    takes ten seconds.
    """
    try:
        (part,) = dataset.describe(REVIEWS)
        since = ReviewMark(*part.lineage[_VERSION_KEY])
        if set(read_schema(part.path).names) != set(schema(REVIEWS).names):
            return False
        changes = changed_reviews(dataset.out, since, MAX_CHANGES)
        if changes is None:
            return False
        _write_table(dataset, changes.mark, _with_changes(part.path, changes))
    except (TablesError, KeyError, TypeError, ValueError):  # a broken file, or one that another program wrote
        return False
    return True


def _with_changes(part: Path, changes: ReviewChanges) -> Iterator[pa.Table]:
    """Yield the rows of the Parquet file `part` of the table `reviews` with the changes `changes`.

    The old rows of the changed items are left out. The newest decisions about these items come at the end.
    """
    changed = pa.array(changes.items, pa.string())
    for batch in read_batches(part):
        rows = pa.Table.from_batches([batch])
        yield rows.filter(pc.invert(pc.is_in(rows.column("item_id"), value_set=changed)))
    yield _arrow_table(changes.reviews)


def _write_table(dataset: Dataset, mark: ReviewMark, tables: Iterable[pa.Table]) -> int:
    """Replace the table `reviews` in `dataset` by the rows in `tables`, and return the number of rows.

    `mark` is the version of the decisions. It is stored in the new file.
    """
    lineage = {"lightmeter": __version__, _VERSION_KEY: list(mark)}
    with dataset.staging() as staging, open_parts(staging, 0, {REVIEWS: schema(REVIEWS)}, lineage) as parts:
        for table in tables:
            parts[REVIEWS].write(table)
        parts[REVIEWS].close()
        dataset.publish(staging)
    return parts[REVIEWS].rows


def _is_current(dataset: Dataset) -> bool:
    try:
        lineage = dataset.lineage(REVIEWS)
    except TablesError:  # a broken file is written anew
        return False
    return lineage is not None and lineage.get(_VERSION_KEY) == list(review_mark(dataset.out))


def _arrow_table(reviews: list[ReviewDecision]) -> pa.Table:
    names = ("item_id", "url", "run_id", "decision", "note")
    columns: dict[str, ColumnValues] = {name: [getattr(one, name) for one in reviews] for name in names}
    columns["reviewer"] = [one.by for one in reviews]
    columns["decided_at"] = to_timestamps([one.at for one in reviews])
    return build_table(schema(REVIEWS), columns, len(reviews))
