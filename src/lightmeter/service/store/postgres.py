"""The service's database in PostgreSQL, which any number of processes can share.

All tables, including those of the job queue, are in the PostgreSQL schema `lightmeter`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import psycopg
from procrastinate.schema import SchemaManager
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

from lightmeter.errors import SettingsError
from lightmeter.service.store.schema import SCHEMA, VERSION, migrations_from
from lightmeter.service.store.sql_dialects import (
    Connection,
    DatabaseFull,
    StoreError,
    to_postgres,
    to_postgres_tables,
)

T = TypeVar("T")

CONNECTIONS: Final = 4
"""Connections per process. More would wait for locks on the same rows."""

CONNECT_TIMEOUT_S: Final = 10.0
"""Seconds to wait for a new connection, or for a free one of the pool."""

CLOCK: Final = """
-- Leases use the database's clock, because all processes share it.
CREATE FUNCTION now_s() RETURNS DOUBLE PRECISION LANGUAGE sql VOLATILE
    AS 'SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)';
"""

SCHEMA_LOCK: Final = 0x6C69676874
"""Number of the PostgreSQL advisory lock under which one process at a time creates or migrates the tables."""


class _PostgresTransaction:
    """A transaction of psycopg with the interface `Connection`."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        # All statements are constants of this project; values are always parameters.
        cursor = self.connection.execute(to_postgres(sql), parameters)
        return cursor.fetchall() if cursor.description else []

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.connection.cursor() as cursor:
            cursor.executemany(to_postgres(sql), rows)


def psycopg_connection(db: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    """Return the psycopg connection of a transaction, so that the job queue can write in it."""
    assert isinstance(db, _PostgresTransaction)  # noqa: S101 (the queue is used only with this database)
    return db.connection


def with_search_path(database: str) -> str:
    """Return psycopg's connection string for a database URL, with the schema `lightmeter` and a connect timeout.

    Raises:
        SettingsError: the URL cannot be parsed.
    """
    try:
        parameters = conninfo_to_dict(database)
    except psycopg.Error:  # its message would show the URL with the password
        raise SettingsError("The database postgresql://… cannot be read.") from None
    options = f"{parameters.get('options') or ''} -c search_path=lightmeter".strip()
    parameters.setdefault("connect_timeout", int(CONNECT_TIMEOUT_S))
    return make_conninfo("", **{**parameters, "options": options, "application_name": "lightmeter"})


class PostgresDatabase:
    """A PostgreSQL database, open for writing.

    Args:
        database: Its URL, `postgresql://…`.

    Raises:
        SettingsError: the database cannot be reached or written, or a newer version of lightmeter created it.
    """

    def __init__(self, database: str) -> None:
        conninfo = with_search_path(database)
        try:
            with psycopg.connect(conninfo) as connection:
                _create_or_migrate_tables(connection)
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise SettingsError(f"The PostgreSQL database cannot be used: {reason}") from error
        self._pool = ConnectionPool(
            conninfo,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECT_TIMEOUT_S,
            check=ConnectionPool.check_connection,
            name="lightmeter-store",
            open=True,
        )
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="lightmeter-store")

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a new transaction in a thread; return its result after the commit.

        Cancelling the caller does not cancel the transaction.

        Raises:
            StoreError: PostgreSQL failed.
            RuntimeError: the database is closed.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._threads, self._transaction, work))

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._pool.connection() as connection:
                return work(_PostgresTransaction(connection))
        except psycopg.errors.DiskFull as error:
            raise DatabaseFull("The disk of the PostgreSQL server is full.") from error
        except psycopg.Error as error:
            raise StoreError(f"PostgreSQL failed: {type(error).__name__}.") from error

    def close(self) -> None:
        """Finish all queued transactions and close the connections."""
        self._threads.shutdown()
        self._pool.close()


def _create_or_migrate_tables(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Create the tables of the service and of the job queue, or migrate them, in one transaction."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
    version_table = connection.execute("SELECT to_regclass('lightmeter.version')").fetchone()
    if version_table is None or version_table[0] is None:
        connection.execute("CREATE SCHEMA IF NOT EXISTS lightmeter")
        connection.execute("CREATE TABLE version (version BIGINT NOT NULL, swept_at DOUBLE PRECISION NOT NULL)")
        connection.execute("INSERT INTO version VALUES (%s, 0)", (VERSION,))
        connection.execute(to_postgres_tables(SCHEMA) + CLOCK)
        connection.execute(SchemaManager.get_schema())
        return
    row = connection.execute("SELECT version FROM version").fetchone()
    for step in migrations_from(int(row[0]) if row else 0, "postgresql://…"):
        connection.execute(to_postgres_tables(step))
    connection.execute("UPDATE version SET version = %s WHERE version <> %s", (VERSION, VERSION))
