"""The table `reviews`: what is copied of the former file, and when all decisions are read anew."""

from __future__ import annotations

import pytest

from lightmeter.export import review_table
from lightmeter.export.review_table import export_reviews, write_reviews
from lightmeter.journal.reviews import REVIEWS_NAME, add_reviews, withdraw_reviews
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.dataset import Dataset
from tests.tables.replace_table import replace_table


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    """A table with the decisions about three items, and a fourth row that only the file has."""
    add_reviews(tmp_path, "run", [(item, f"u/{item}") for item in "cab"], "keep", "Ann")
    dataset = Dataset(tmp_path)
    export_reviews(tmp_path)
    rows, lineage = dataset.read("reviews"), dataset.lineage("reviews")
    other = [{**rows.to_pylist()[0], "item_id": "copied"}]
    with replace_table(dataset, "reviews", schema("reviews"), lineage) as writer:
        writer.write(rows)
        writer.write(rows.from_pylist(other, schema=rows.schema))
    return dataset


def decisions(dataset: Dataset) -> dict[str, str]:
    """Return item id → decision, from a table that has each item once."""
    rows = dataset.read("reviews").to_pylist()
    found = {row["item_id"]: row["decision"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_rows_of_unchanged_items_are_copied(dataset):
    """After a few decisions and withdrawals, only the rows of their items are read from `reviews.sqlite`."""
    first = add_reviews(dataset.out, "run", [("a", "u/a"), ("d", "u/d")], "reject", "Bob")
    export_reviews(dataset.out)
    assert decisions(dataset) == {"a": "reject", "b": "keep", "c": "keep", "copied": "keep", "d": "reject"}
    withdraw_reviews(dataset.out, first, "Bob")
    export_reviews(dataset.out)
    assert decisions(dataset) == {"a": "keep", "b": "keep", "c": "keep", "copied": "keep"}
    with dataset.locked():
        write_reviews(dataset)
    assert decisions(dataset) == {"a": "keep", "b": "keep", "c": "keep"}


def test_many_changes_are_read_anew(dataset, monkeypatch):
    """If more items changed than `MAX_CHANGES`, all decisions are read."""
    monkeypatch.setattr(review_table, "MAX_CHANGES", 1)
    add_reviews(dataset.out, "run", [("a", "u/a"), ("d", "u/d")], "reject", "Bob")
    export_reviews(dataset.out)
    assert decisions(dataset) == {"a": "reject", "b": "keep", "c": "keep", "d": "reject"}


def test_another_reviews_file_is_read_anew(dataset):
    """If `reviews.sqlite` has fewer decisions than the table, it is another file, and all of it is read."""
    add_reviews(dataset.out, "run", [("a", "u/a")], "reject", "Bob")
    export_reviews(dataset.out)
    for path in dataset.out.glob(f"{REVIEWS_NAME}*"):
        path.unlink()
    add_reviews(dataset.out, "run", [("e", "u/e")], "keep", "Ann")
    export_reviews(dataset.out)
    assert decisions(dataset) == {"e": "keep"}


def test_broken_table_is_written_anew(dataset):
    """A broken file is replaced by one with all decisions."""
    dataset.parts("reviews")[0].write_bytes(b"PAR1 broken")
    add_reviews(dataset.out, "run", [("a", "u/a")], "reject", "Bob")
    export_reviews(dataset.out)
    assert decisions(dataset) == {"a": "reject", "b": "keep", "c": "keep"}
