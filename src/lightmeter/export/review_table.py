"""The table `reviews`: decisions of people about items, written from `reviews.sqlite` as one Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa

from lightmeter import __version__
from lightmeter.errors import TablesError
from lightmeter.facts.columns import REVIEWS
from lightmeter.journal.reviews import Review, has_reviews, review_batches, review_mark
from lightmeter.tables.arrow.row_tables import build_table, to_timestamps
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.dataset import Dataset, open_parts
from lightmeter.tables.query.duckdb_catalog import CATALOG, write_catalog

_MARK: Final = "reviews"
"""Key in the lineage of the file: the state of the decisions in it."""


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
    lineage = {"lightmeter": __version__, _MARK: list(mark)}
    with dataset.staging() as staging, open_parts(staging, 0, {REVIEWS: schema(REVIEWS)}, lineage) as parts:
        parts[REVIEWS].write(_arrow_table(first))
        for _, reviews in batches:
            parts[REVIEWS].write(_arrow_table(reviews))
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
