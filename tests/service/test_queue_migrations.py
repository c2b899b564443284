"""The job queue of an older PostgreSQL database is migrated to that of the installed procrastinate."""

from __future__ import annotations

from importlib import import_module

import pytest

from lightmeter.errors import SettingsError
from lightmeter.service.store.store import Store

pytestmark = pytest.mark.postgres
pytest.importorskip("psycopg")
queues = import_module("tests.service.old_queue")


@pytest.mark.parametrize("last", [None, "03.03.99", "03.04.00_01_pre_add_retry_failed_job_procedure", "99"])
def test_an_older_job_queue_is_migrated(postgres, last):
    """From the oldest version ever allowed, and from each later one, the schema becomes that of a new database."""
    Store(postgres).close()
    current = queues.describe_queue(postgres)
    with queues.psycopg.connect(postgres, autocommit=True) as db:
        db.execute("DROP SCHEMA lightmeter CASCADE")
    queues.create_old_database(postgres, last and queues.queue_schema_scripts(last))
    for _ in range(2):
        Store(postgres).close()
        assert queues.describe_queue(postgres) == current


def test_a_newer_job_queue_is_refused(postgres):
    """A migration that the installed procrastinate does not know is an error that names it."""
    Store(postgres).close()
    with queues.psycopg.connect(postgres, autocommit=True) as db:
        db.execute("INSERT INTO lightmeter.queue_migrations VALUES ('04.00.00_01_pre_new')")
    with pytest.raises(SettingsError, match=r"newer procrastinate: 04\.00\.00_01_pre_new"):
        Store(postgres)
