"""Decisions of people in `reviews.sqlite`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from lightmeter import sqlite
from lightmeter.errors import JournalError, UsageError
from lightmeter.journal.reviews import (
    REVIEWS_NAME,
    add_reviews,
    items_since,
    read_reviews,
    review_chunks,
    review_mark,
    valid_decisions,
    withdraw_reviews,
)


def valid(folder):
    """Return item id → valid decision."""
    found = {one.item_id: one.decision for _, chunk in review_chunks(folder) for one in chunk}
    assert valid_decisions(folder) == found
    return found


def test_the_newest_decision_that_is_not_withdrawn_is_valid(tmp_path):
    """A withdrawal makes an earlier decision valid again, whoever made it, and withdraws nothing newer."""
    first = add_reviews(tmp_path, "run", [("a", "u/a"), ("b", "u/b")], "keep", "Ann")
    second = add_reviews(tmp_path, "run", [("a", "u/a")], "reject", "Bob", " blurry ")
    assert valid(tmp_path) == {"a": "reject", "b": "keep"}
    (one,) = read_reviews(tmp_path, ["a", "unknown"]).values()
    assert (one.item_id, one.url, one.run_id, one.by, one.note) == ("a", "u/a", "run", "Bob", "blurry")
    assert withdraw_reviews(tmp_path, first, "Ann") == ["a", "b"]
    assert valid(tmp_path) == {"a": "reject"}
    withdraw_reviews(tmp_path, second, "Bob")
    withdraw_reviews(tmp_path, second, "Bob")
    assert valid(tmp_path) == {}


def test_changes_since_a_state_are_found(tmp_path):
    """Readers learn the items of new decisions and of new withdrawals, and nothing else."""
    batch = add_reviews(tmp_path, "run", [("a", "")], "keep", "Ann")
    mark = review_mark(tmp_path)
    assert items_since(tmp_path, mark) == []
    add_reviews(tmp_path, "run", [("b", "")], "unsure", "Ann")
    withdraw_reviews(tmp_path, batch, "Ann")
    assert sorted(items_since(tmp_path, mark)) == ["a", "b"]
    assert items_since(tmp_path, review_mark(tmp_path)) == []


def test_no_decision_of_concurrent_writers_is_lost(tmp_path):
    """Writers at the same time each get a number of their own, and all decisions are kept."""

    def write(number):
        return add_reviews(tmp_path, "run", [(f"{number}", "")], "keep", f"person {number % 2}")

    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(write, range(40)))
    assert len(set(batches)) == 40
    assert len(valid(tmp_path)) == 40


def test_a_folder_without_decisions_is_not_written(tmp_path):
    """Reading creates no file."""
    assert (valid(tmp_path), read_reviews(tmp_path, ["a"])) == ({}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "  "])
def test_a_decision_needs_a_name(tmp_path, name):
    """A decision without the name of a person is refused."""
    with pytest.raises(UsageError, match="name"):
        add_reviews(tmp_path, "run", [("a", "")], "keep", name)


def test_problems_have_sentences(tmp_path):
    """An unknown number and a damaged file raise errors that say so."""
    with pytest.raises(UsageError, match="no decision 7"):
        withdraw_reviews(tmp_path, 7, "Ann")
    (tmp_path / REVIEWS_NAME).write_bytes(b"no database" * 100)
    for action in (valid, review_mark, lambda folder: add_reviews(folder, "run", [("a", "")], "keep", "Ann")):
        with pytest.raises(JournalError, match=r"reviews\.sqlite cannot be"):
            action(tmp_path)


def test_an_empty_file_of_a_killed_writer_is_read(tmp_path):
    """A file without its tables, as a writer leaves that is killed at its first decision, holds no decision."""
    sqlite.open_wal(tmp_path / REVIEWS_NAME).close()
    assert (valid(tmp_path), read_reviews(tmp_path, ["a"])) == ({}, {})
