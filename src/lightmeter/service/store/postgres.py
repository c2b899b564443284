"""The service's database in PostgreSQL, which any number of processes can share.

All tables, including those of the job queue, are in the PostgreSQL schema `lightmeter`. Each transaction selects it for
itself, and nothing else is kept in a session, because a pooler such as PgBouncer may give each transaction of a client
another session.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
from procrastinate.schema import SchemaManager
from psycopg import IsolationLevel
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
"""Maximum connections of a process, and number of threads that use them.

More connections would only wait for locks on the same rows.
"""

CONNECT_TIMEOUT_S: Final = 10.0
"""Maximum seconds to wait for a new connection to PostgreSQL, or for a free connection of the pool."""

CLOCK: Final = """
-- Leases use the database's clock, because all processes share it.
CREATE FUNCTION now_s() RETURNS DOUBLE PRECISION LANGUAGE sql VOLATILE
    AS 'SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)';
"""

BASELINE_QUEUE_MIGRATION: Final = "03.02.00_50_post_batch_defer_jobs"
"""Name of the last migration that procrastinate 3.2.1 has.

Earlier versions of lightmeter required at least procrastinate 3.2.1, and did not record migrations. So in their
databases, all migrations up to this one have been applied.
"""

SCHEMA_LOCK: Final = 0x6C69676874
"""Number of a PostgreSQL advisory lock. Only the process that holds it may create or migrate the tables."""

SELECT_SCHEMA: Final = "SET LOCAL search_path TO lightmeter"
"""First statement of each transaction."""

CONNECTION_ARGUMENTS: Final[dict[str, Any]] = {"prepare_threshold": None}
"""Further arguments of psycopg's connections. Prepared statements belong to a session."""

MAX_ATTEMPTS: Final = 5
"""Maximum number of times that a transaction is run if PostgreSQL rolls it back because of other transactions."""

MAX_PAUSE_S: Final = 0.05
"""Maximum seconds before such a transaction is run again."""

_ROLLED_BACK: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)

_ALREADY_EXISTS: Final = (
    psycopg.errors.DuplicateColumn,
    psycopg.errors.DuplicateFunction,
    psycopg.errors.DuplicateObject,
    psycopg.errors.DuplicateTable,
)


class _PostgresTransaction:
    """Runs SQL in a PostgreSQL transaction, with `?` as the placeholder. It implements the protocol `Connection`."""

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
    """Return the psycopg connection that `db` uses, so that the job queue can add jobs in the same transaction."""
    assert isinstance(db, _PostgresTransaction)  # noqa: S101 (the queue is used only with this database)
    return db.connection


def connection_string(database: str) -> str:
    """Return a connection string for psycopg: the database URL with the encoding of texts and a connect timeout.

    Raises:
        SettingsError: the URL cannot be parsed.
    """
    try:
        parameters = conninfo_to_dict(database)
    except psycopg.Error:  # its message would show the URL with the password
        raise SettingsError("The database postgresql://… cannot be read.") from None
    parameters.setdefault("connect_timeout", int(CONNECT_TIMEOUT_S))
    return make_conninfo("", **{**parameters, "client_encoding": "UTF8", "application_name": "lightmeter"})


class PostgresDatabase:
    """A PostgreSQL database, open for writing.

    Args:
        database: Its URL, `postgresql://…`.

    Raises:
        SettingsError: the database cannot be reached or written, it is not encoded in UTF-8, or a newer version of
            lightmeter or of procrastinate has changed it.
    """

    def __init__(self, database: str) -> None:
        conninfo = connection_string(database)
        try:
            with psycopg.connect(conninfo, **CONNECTION_ARGUMENTS) as connection:
                connection.isolation_level = IsolationLevel.READ_COMMITTED
                _create_or_migrate_tables(connection)
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise SettingsError(f"The PostgreSQL database cannot be used: {reason}") from error
        self._pool = ConnectionPool(
            conninfo,
            kwargs=CONNECTION_ARGUMENTS,
            configure=_set_isolation_level,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECT_TIMEOUT_S,
            check=ConnectionPool.check_connection,
            name="lightmeter-store",
            open=True,
        )
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="lightmeter-store")

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a new transaction in a thread, and return its result after the commit.

        If PostgreSQL rolls the transaction back because of other transactions, run `work` again. If the caller is
        cancelled, the transaction goes on.

        Raises:
            StoreError: PostgreSQL failed.
            RuntimeError: the database is closed.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._threads, self._transaction, work))

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            try:
                with self._pool.connection() as connection:
                    connection.execute(SELECT_SCHEMA)
                    return work(_PostgresTransaction(connection))
            except psycopg.errors.DiskFull as error:
                raise DatabaseFull("The disk of the PostgreSQL server is full.") from error
            except psycopg.Error as error:
                if not attempts_left or not isinstance(error, _ROLLED_BACK):
                    raise StoreError(f"PostgreSQL failed: {type(error).__name__}.") from error
            time.sleep(random.uniform(0, MAX_PAUSE_S))  # noqa: S311 (so that those in conflict do not meet again)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Finish all queued transactions and close the connections."""
        self._threads.shutdown()
        self._pool.close()


def _create_or_migrate_tables(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Create the tables of the service and of the job queue, or migrate them, in one transaction."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SettingsError(
            f"The PostgreSQL database has the encoding {encoding}, which cannot hold the texts of all languages.",
            hint="Create another: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0",
        )
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
    _create_schema(connection)
    connection.execute(SELECT_SCHEMA)
    version_table = connection.execute("SELECT to_regclass('lightmeter.version')").fetchone()
    if version_table is None or version_table[0] is None:
        connection.execute("CREATE TABLE version (version BIGINT NOT NULL, swept_at DOUBLE PRECISION NOT NULL)")
        connection.execute("INSERT INTO version VALUES (%s, 0)", (VERSION,))
        connection.execute(to_postgres_tables(SCHEMA) + CLOCK)
        connection.execute(SchemaManager.get_schema())
        _record_queue_migrations(connection, _queue_migrations())
        return
    row = connection.execute("SELECT version FROM version").fetchone()
    for step in migrations_from(int(row[0]) if row else 0, "postgresql://…"):
        connection.execute(to_postgres_tables(step))
    connection.execute("UPDATE version SET version = %s WHERE version <> %s", (VERSION, VERSION))
    _migrate_queue(connection)


def _create_schema(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Create the schema `lightmeter`, unless there is one: then the role needs no right to create schemas."""
    if connection.execute("SELECT to_regnamespace('lightmeter')").fetchone() != (None,):
        return
    try:
        connection.execute("CREATE SCHEMA lightmeter")
    except psycopg.errors.InsufficientPrivilege as error:
        raise SettingsError(
            f"The role {connection.info.user} may not create the schema lightmeter in the PostgreSQL database.",
            hint=f"As the owner of the database: CREATE SCHEMA lightmeter AUTHORIZATION {connection.info.user}",
        ) from error


def _set_isolation_level(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    connection.isolation_level = IsolationLevel.READ_COMMITTED  # of each transaction: what is read is locked, too


def _queue_migrations() -> dict[str, Path]:
    """Return name → SQL file of each migration of procrastinate's job queue, in the order in which to apply them.

    The name is the file name without suffix.
    """
    return {path.stem: path for path in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))}


def _record_queue_migrations(connection: psycopg.Connection[tuple[Any, ...]], names: Iterable[str]) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS queue_migrations (name TEXT PRIMARY KEY)")
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO queue_migrations VALUES (%s) ON CONFLICT DO NOTHING", [(name,) for name in names]
        )


def _migrate_queue(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Apply the migrations of the job queue that the database lacks. The library procrastinate does not apply them.

    Earlier versions of lightmeter did not record which migrations were applied. In their databases, a migration is
    skipped if it would create something that already exists.

    Raises:
        SettingsError: a newer version of procrastinate has changed the job queue.
    """
    scripts = _queue_migrations()
    _record_queue_migrations(connection, ())
    recorded = {name for (name,) in connection.execute("SELECT name FROM queue_migrations").fetchall()}
    if unknown := sorted(recorded - scripts.keys()):
        raise SettingsError(
            f"The job queue of the PostgreSQL database was changed by a newer procrastinate: {unknown[-1]}.",
            hint="Install the version that the other services and workers use: pip install --upgrade procrastinate",
        )
    applied = recorded or {name for name in scripts if name <= BASELINE_QUEUE_MIGRATION}
    for name, path in scripts.items():
        if name not in applied:
            try:
                with connection.transaction():
                    connection.execute(path.read_bytes())
            except _ALREADY_EXISTS:
                if recorded:
                    raise
    _record_queue_migrations(connection, scripts)
