"""Opening, locking and writing SQLite databases."""

from __future__ import annotations

import asyncio

import pytest

from lightmeter import sqlite


@pytest.fixture
def writer(tmp_path):
    """A writer on a database with one table of numbers."""
    connection = sqlite.open_wal(tmp_path / "numbers.sqlite")
    connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
    writer = sqlite.GroupCommitWriter(connection, "test-writer", lambda error: OSError(str(error)))
    yield writer
    writer.close()


def insert(number):
    """Return a change that inserts a number."""
    return lambda db: db.execute("INSERT INTO numbers VALUES (?)", (number,)) and number


def numbers(db):
    """Return all numbers."""
    return [number for (number,) in db.execute("SELECT number FROM numbers ORDER BY number")]


async def test_changes_are_applied_in_order(writer):
    """Changes of one batch see those that were queued before them."""
    changes = [change for number in range(5) for change in (insert(number), numbers)]
    results = await asyncio.gather(*map(writer.write, changes))
    assert results == [result for number in range(5) for result in (number, list(range(number + 1)))]


async def test_a_closed_writer_refuses_changes(writer):
    """After `close` a change raises `WriterClosed`, and `close` can be called again."""
    writer.close()
    writer.close()
    with pytest.raises(sqlite.WriterClosed):
        await writer.write(insert(1))
    with pytest.raises(sqlite.WriterClosed):
        writer.submit(insert(1))


def test_a_change_that_ends_the_transaction_fails_and_the_writer_continues(writer):
    """A change that rolls the transaction back is an error for its caller; later changes are written."""
    with pytest.raises(OSError, match=r"logic error|savepoint"):
        writer.submit(lambda db: db.execute("ROLLBACK")).result()
    assert writer.submit(insert(1)).result() == 1
    assert writer.submit(numbers).result() == [1]


def test_changes_that_do_not_fit_fail_alone(writer):
    """If a batch is too large for the disk, those of its changes that fit are written."""
    writer.submit(lambda db: db.execute("CREATE TABLE texts (text TEXT)") and None).result()
    writer.submit(lambda db: db.execute(f"PRAGMA max_page_count = {db.pragma('page_count') + 2}") and None).result()

    async def write_both():
        large, small = (lambda db, size=size: db.execute("INSERT INTO texts VALUES (?)", ("x" * size,)) and size
                        for size in (1_000_000, 10))  # fmt: skip
        return await asyncio.gather(writer.write(large), writer.write(small), return_exceptions=True)

    failed, written = asyncio.run(write_both())
    assert isinstance(failed, OSError)
    assert written == 10


def test_an_exclusive_lock_excludes_others(tmp_path):
    """One process has the lock at a time; checking it does not acquire it."""
    path = tmp_path / "lock"
    assert not sqlite.is_exclusively_locked(path)
    lock = sqlite.hold_exclusive_lock(path)
    assert sqlite.is_exclusively_locked(path)
    with pytest.raises(sqlite.BusyError):
        sqlite.hold_exclusive_lock(path)
    lock.close()
    assert not sqlite.is_exclusively_locked(path)
    sqlite.hold_exclusive_lock(path).close()


@pytest.mark.parametrize("error", [ValueError("odd"), sqlite.BusyError("locked")])
def test_a_failing_function_after_a_commit_stops_neither_writer_nor_callers(writer, error):
    """If the function after a commit raises, the caller gets its result, and later changes are written."""

    def fail(_):
        raise error

    writer.after_commit = fail
    assert writer.submit(insert(1)).result(timeout=10) == 1
    assert writer.submit(insert(2)).result(timeout=10) == 2
    assert writer.submit(numbers).result(timeout=10) == [1, 2]


def test_a_group_with_too_few_results_fails_and_the_writer_continues(writer):
    """An error outside of a single change is raised for its callers, and the writer goes on."""

    class Forgetful:
        def __call__(self, db):
            return None

        @staticmethod
        def apply_all(db, changes):
            return []

    async def write_both():
        return await asyncio.gather(writer.write(Forgetful()), writer.write(Forgetful()), return_exceptions=True)

    assert [type(outcome) for outcome in asyncio.run(asyncio.wait_for(write_both(), 10))] == [ValueError, ValueError]
    assert writer.submit(insert(1)).result(timeout=10) == 1
