"""PostgreSQL databases of the service that earlier versions wrote still open, with their jobs."""

from __future__ import annotations

import lzma

import pytest

from tests.postgres_server import postgres_or_skip
from tests.upgrades.killed_service import finish_jobs_of_killed_service
from tests.upgrades.make_fixture import FIXTURES

psycopg = pytest.importorskip("psycopg")
pytestmark = [pytest.mark.postgres, pytest.mark.sweep]

DUMPS = sorted(path.name for path in FIXTURES.glob("*.sql.xz"))


@pytest.fixture(scope="module")
def new_database():
    """A function that creates a database in a PostgreSQL server and returns its URL."""
    yield from postgres_or_skip()


@pytest.mark.parametrize("dump", DUMPS)
async def test_an_older_postgresql_database_keeps_balance_and_jobs(dump, new_database):
    """The service starts on an older database, finishes the jobs of a killed one, and charges each of them once."""
    database = new_database(f"old_{DUMPS.index(dump)}")
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(lzma.decompress((FIXTURES / dump).read_bytes()).decode())
        unfinished = "SELECT count(*) FROM lightmeter.procrastinate_jobs WHERE status IN ('todo', 'doing')"
        assert db.execute(unfinished).fetchone()[0] > 0
        await finish_jobs_of_killed_service(database)
        assert db.execute("SELECT count(*) FROM lightmeter.procrastinate_jobs").fetchone() == (0,)
