"""The store: group commits, failing changes, order, closing and full disks, on both databases."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.errors import SettingsError
from lightmeter.service.store.sql_dialects import DatabaseFull, StoreError
from lightmeter.service.store.store import Store


@pytest.fixture
def store(database):
    """Yield an open store on each kind of database."""
    store = Store(database, exclusive=True)
    yield store
    store.close()


def add_account(name, *, error=None):
    """Return a change that adds an account, and then perhaps raises."""

    def change(db):
        db.execute("INSERT INTO accounts (name, credits) VALUES (?, 0)", (name,))
        if error is not None:
            raise error
        return name

    return change


def names(db):
    """Return the names of all accounts."""
    return [name for (name,) in db.execute("SELECT name FROM accounts ORDER BY name")]


async def test_each_caller_gets_its_own_result(store):
    """Each caller gets its own value or error, and a failed change leaves nothing."""
    changes = [
        add_account(f"{number:03}", error=KeyError(number) if number % 3 == 0 else None) for number in range(200)
    ]
    outcomes = await asyncio.gather(*(store.write(change) for change in changes), return_exceptions=True)
    for number, outcome in enumerate(outcomes):
        if number % 3 == 0:
            assert isinstance(outcome, KeyError)
            assert outcome.args == (number,)
        else:
            assert outcome == f"{number:03}"
    assert await store.read(names) == [f"{number:03}" for number in range(200) if number % 3]


async def test_a_database_error_is_a_store_error(store):
    """A second account with one name raises `StoreError`; changes that were queued with it are written."""
    pending = [store.write(add_account(name)) for name in ("a", "a", "b")]
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    assert sorted(isinstance(outcome, StoreError) for outcome in outcomes) == [False, False, True]
    assert await store.read(names) == ["a", "b"]


async def test_cancelling_the_caller_does_not_undo_the_change(store):
    """A queued change is written even if its caller is cancelled."""
    task = asyncio.create_task(store.write(add_account("mine")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(100):
        if found := await store.read(names):
            break
    assert found == ["mine"]


async def test_closing_writes_queued_changes(database):
    """`close` writes every queued change, and later calls raise."""
    store = Store(database)
    pending = [asyncio.create_task(store.write(add_account(f"{number:03}"))) for number in range(150)]
    await asyncio.sleep(0)
    await asyncio.to_thread(store.close)
    assert len(await asyncio.gather(*pending)) == 150
    with pytest.raises(RuntimeError):
        await store.read(names)
    again = Store(database)
    assert len(await again.read(names)) == 150
    again.close()


async def test_on_a_full_disk_only_written_changes_succeed(tmp_path):
    """With a limit of pages as the full disk, exactly the callers of written changes get a result."""
    store = Store(f"sqlite:///{tmp_path / 'small.db'}")

    def fill(db):
        db.execute("PRAGMA max_page_count = 40")

    await store.read(fill)
    outcomes = await asyncio.gather(
        *(store.write(add_account(f"{number:04}" + "x" * 2000)) for number in range(300)), return_exceptions=True
    )
    written = sorted(outcome for outcome in outcomes if isinstance(outcome, str))
    assert {type(outcome) for outcome in outcomes} == {str, DatabaseFull}
    assert await store.read(names) == written
    store.close()


@settings(deadline=None)  # files on a shared disk
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_reads_see_what_was_written_before_them(steps):
    """A read sees all changes that were queued before it, also if some fail."""

    async def run(path):
        store = Store(f"sqlite:///{path}")
        pending, expected, names_so_far = [], [], []
        for number, (is_read, fails) in enumerate(steps):
            if is_read:
                pending.append(store.read(names))
                expected.append(list(names_so_far))
            else:
                pending.append(store.write(add_account(f"{number:03}", error=LookupError() if fails else None)))
                expected.append(None)
                names_so_far += [] if fails else [f"{number:03}"]
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        store.close()
        assert [out for out in outcomes if isinstance(out, list)] == [one for one in expected if one is not None]

    with TemporaryDirectory() as folder:
        asyncio.run(run(f"{folder}/x.db"))


def test_a_file_that_is_no_database_is_refused(tmp_path):
    """The error names the file."""
    (tmp_path / "no.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(SettingsError, match=r"no\.db cannot be used"):
        Store(f"sqlite:///{tmp_path / 'no.db'}")
