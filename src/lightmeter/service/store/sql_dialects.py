"""Parses database URLs, defines the interface of a transaction, and translates SQL, for SQLite and PostgreSQL.

Both databases accept the SQL of this service, with three exceptions: the placeholder of a parameter, the names of
column types, and `FOR UPDATE`, which SQLite does not have. This module translates these three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from lightmeter.errors import LightmeterError, SettingsError
from lightmeter.paths import local_path

_POSTGRES_TYPES: Final = (
    ("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    ("INTEGER", "BIGINT"),
    ("REAL", "DOUBLE PRECISION"),
    ("BLOB", "BYTEA"),
    (") STRICT", ")"),
)


class StoreError(LightmeterError):
    """The database failed during a transaction. It is unknown whether the transaction was committed."""


class DatabaseFull(StoreError):
    """The database's disk is full. The transaction was rolled back, so it changed nothing."""


class Connection(Protocol):
    """Protocol of a transaction on an SQLite or PostgreSQL database: it runs SQL statements."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one SQL statement, with `?` as the placeholder of parameters; return the rows of its result."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one SQL statement once for each sequence of parameters in `rows`."""
        ...


def url_scheme(database: str) -> str:
    """Return the part of a database URL before `://`, for messages: the rest may contain a password."""
    return database.partition("://")[0]


def is_postgres(database: str) -> bool:
    """Return whether a database URL names a PostgreSQL server."""
    return url_scheme(database) in {"postgresql", "postgres"}


def sqlite_path(database: str) -> str:
    """Return the absolute file path of an SQLite database URL.

    Raises:
        SettingsError: the URL is not `sqlite:///PATH`.
    """
    scheme, _, rest = database.partition("://")
    path = rest.removeprefix("/")
    if scheme != "sqlite" or not rest.startswith("/") or not path:
        raise SettingsError(
            f"The database {scheme}://… cannot be used.", hint="Use sqlite:///PATH, or postgresql://USER@HOST/NAME."
        )
    return str(local_path(path))


@lru_cache(maxsize=256)
def to_sqlite(sql: str) -> str:
    """Return SQL without `FOR UPDATE`. SQLite needs no row locks, because it runs one writing transaction at a time."""
    return sql.replace(" FOR UPDATE", "")


@lru_cache(maxsize=256)
def to_postgres(sql: str) -> str:
    """Return an SQL statement with psycopg's placeholder `%s` instead of `?`."""
    return sql.replace("%", "%%").replace("?", "%s")


def to_postgres_tables(sql: str) -> str:
    """Return statements that create or change tables, with the column types translated for PostgreSQL."""
    for sqlite_type, postgres_type in _POSTGRES_TYPES:
        sql = sql.replace(sqlite_type, postgres_type)
    return sql
