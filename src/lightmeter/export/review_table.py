"""The table `reviews`: decisions of people to keep or reject items; one Parquet file, written from `reviews.sqlite`."""

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
    Review,
    ReviewChanges,
    ReviewMark,
    changed_reviews,
    has_reviews,
    review_batches,
    review_mark,
)
from lightmeter.tables.arrow.row_tables import build_table, to_timestamps
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.dataset import Dataset, open_parts
from lightmeter.tables.parts import read_batches, read_schema
from lightmeter.tables.query.duckdb_catalog import CATALOG, write_catalog

_MARK: Final = "reviews"
"""Key in the lineage of the file: the state of the decisions in it."""

MAX_CHANGES: Final = 10_000
"""Most changed items for which the old file is copied with changes; for more, the table is written anew."""


def export_reviews(out: Path) -> None:
    """Write the table `reviews` of the run in `out`, unless it holds the newest decisions already.

    Raises:
        TablesError: The table cannot be written; the decisions stay in `reviews.sqlite`.
        JournalError: `reviews.sqlite` cannot be read.
    """
    dataset = Dataset(out)
    if not has_reviews(out) or _is_current(dataset):
        return
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
    """Write the table `reviews` anew, if there are decisions; return its number of rows.

    Call this function only inside a block of `dataset.locked()`, so that no writer replaces newer decisions.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
        OSError: The table cannot be written.
    """
    if not has_reviews(dataset.out):
        return 0
    batches = review_batches(dataset.out)
    mark, first = next(batches)
    return _write_table(
        dataset, mark, (_arrow_table(reviews) for reviews in chain([first], (each[1] for each in batches)))
    )


def _update_table(dataset: Dataset) -> bool:
    """Replace the table `reviews` in `dataset` by a copy with newer decisions; return whether that was possible.

    It is impossible if the table is missing, broken or of another version, or if more than `MAX_CHANGES` items changed.
    Copying a million decisions takes less than a second, but reading them from SQLite takes ten.
    """
    try:
        (part,) = dataset.describe(REVIEWS)
        since = ReviewMark(*part.lineage[_MARK])
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
    """Yield the rows of the Parquet file `part` of the table `reviews`, brought up to date.

    The rows of items in `changes` are left out; their newest decisions come at the end.
    """
    changed = pa.array(changes.items, pa.string())
    for batch in read_batches(part):
        rows = pa.Table.from_batches([batch])
        yield rows.filter(pc.invert(pc.is_in(rows.column("item_id"), value_set=changed)))
    yield _arrow_table(changes.reviews)


def _write_table(dataset: Dataset, mark: ReviewMark, tables: Iterable[pa.Table]) -> int:
    """Replace the table `reviews` in `dataset` by the rows in `tables`; return the number of rows.

    `mark`, the version of the decisions, is stored in the new file.
    """
    lineage = {"lightmeter": __version__, _MARK: list(mark)}
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
    return lineage is not None and lineage.get(_MARK) == list(review_mark(dataset.out))


def _arrow_table(reviews: list[Review]) -> pa.Table:
    names = ("item_id", "url", "run_id", "decision", "by", "note")
    columns = {name: [getattr(one, name) for one in reviews] for name in names}
    return build_table(schema(REVIEWS), {**columns, "at": to_timestamps([one.at for one in reviews])}, len(reviews))
