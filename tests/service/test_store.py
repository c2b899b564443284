"""Changes that are handed in together are written together, and one that fails takes nothing of the others with it."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.errors import SettingsError
from lightmeter.service.store.database import StoreError
from lightmeter.service.store.store import Store


@pytest.fixture
def store(database):
    """An open store on each kind of database."""
    store = Store(database, exclusive=True)
    yield store
    store.close()


def opened(name, *, breaks=None):
    """Opens an account, and perhaps raises afterwards."""

    def change(db):
        db.execute("INSERT INTO accounts (name, credits) VALUES (?, 0)", (name,))
        if breaks is not None:
            raise breaks
        return name

    return change


def names(db):
    """Accounts there are."""
    return [name for (name,) in db.execute("SELECT name FROM accounts ORDER BY name")]


async def test_each_of_many_is_answered_with_its_own(store):
    """Values and errors go to whoever asked; what failed has left nothing."""
    changes = [opened(f"{number:03}", breaks=KeyError(number) if number % 3 == 0 else None) for number in range(200)]
    outcomes = await asyncio.gather(*(store.write(change) for change in changes), return_exceptions=True)
    for number, outcome in enumerate(outcomes):
        if number % 3 == 0:
            assert isinstance(outcome, KeyError)
            assert outcome.args == (number,)
        else:
            assert outcome == f"{number:03}"
    assert await store.read(names) == [f"{number:03}" for number in range(200) if number % 3]


async def test_an_error_of_the_database_is_its_own_kind(store):
    """Two accounts of one name: the second cannot be; the others that were handed in with it are there."""
    handed_in = [store.write(opened(name)) for name in ("a", "a", "b")]
    outcomes = await asyncio.gather(*handed_in, return_exceptions=True)
    assert sorted(isinstance(outcome, StoreError) for outcome in outcomes) == [False, False, True]
    assert await store.read(names) == ["a", "b"]


async def test_who_stops_waiting_takes_nothing_back(store):
    """It is written all the same."""
    task = asyncio.create_task(store.write(opened("mine")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(100):
        if found := await store.read(names):
            break
    assert found == ["mine"]


async def test_closing_finishes_what_was_handed_in(database):
    """Nothing that was taken is forgotten, and nothing more is taken."""
    store = Store(database)
    handed_in = [asyncio.create_task(store.write(opened(f"{number:03}"))) for number in range(150)]
    await asyncio.sleep(0)
    await asyncio.to_thread(store.close)
    assert len(await asyncio.gather(*handed_in)) == 150
    with pytest.raises(RuntimeError):
        await store.read(names)
    again = Store(database)
    assert len(await again.read(names)) == 150
    again.close()


async def test_a_transaction_that_is_lost_is_lost_for_all_in_it(tmp_path):
    """The full disk, as a limit of pages: nobody is told that it was written who has lost it."""
    store = Store(f"sqlite:///{tmp_path / 'small.db'}")

    def fill(db):
        db.execute("PRAGMA max_page_count = 40")

    await store.read(fill)
    outcomes = await asyncio.gather(
        *(store.write(opened(f"{number:04}" + "x" * 2000)) for number in range(300)), return_exceptions=True
    )
    told = sorted(outcome for outcome in outcomes if isinstance(outcome, str))
    assert {type(outcome) for outcome in outcomes} == {str, StoreError}
    assert await store.read(names) == told
    store.close()


@settings(deadline=None)  # files, on a disk that others use
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_reads_see_what_was_written_before_them(steps):
    """In the order in which they were handed in, whichever of them share a transaction and whichever fail."""

    async def run(path):
        store = Store(f"sqlite:///{path}")
        handed_in, expected, there = [], [], []
        for number, (is_read, fails) in enumerate(steps):
            if is_read:
                handed_in.append(store.read(names))
                expected.append(list(there))
            else:
                handed_in.append(store.write(opened(f"{number:03}", breaks=LookupError() if fails else None)))
                expected.append(None)
                there += [] if fails else [f"{number:03}"]
        outcomes = await asyncio.gather(*handed_in, return_exceptions=True)
        store.close()
        assert [out for out in outcomes if isinstance(out, list)] == [one for one in expected if one is not None]

    with TemporaryDirectory() as folder:
        asyncio.run(run(f"{folder}/x.db"))


def test_a_file_that_is_none_is_refused(tmp_path):
    """The message names the file."""
    (tmp_path / "no.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(SettingsError, match=r"no\.db cannot be used"):
        Store(f"sqlite:///{tmp_path / 'no.db'}")
