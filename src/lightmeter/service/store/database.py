"""One SQL dialect for SQLite and PostgreSQL: database addresses, the transaction protocol, and translation.

Both databases accept the SQL of this service except for three things: the placeholder of a parameter, the names of
column types, and `FOR UPDATE`, which SQLite does not have. Those are translated here. About forty statements do not
justify a query builder such as SQLAlchemy Core.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from lightmeter.errors import LightmeterError, SettingsError

__all__ = [
    "Connection",
    "StoreError",
    "is_postgres",
    "scheme_of",
    "sqlite_path",
    "to_postgres",
    "to_postgres_tables",
    "to_sqlite",
]

_POSTGRES_TYPES: Final = (
    ("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    ("INTEGER", "BIGINT"),
    ("REAL", "DOUBLE PRECISION"),
    ("BLOB", "BYTEA"),
    (") STRICT", ")"),
)


class StoreError(LightmeterError):
    """The database failed during a transaction: it is unknown whether the transaction was committed."""


class Connection(Protocol):
    """A transaction on either database."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with `?` for each parameter; return its rows."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of parameters."""
        ...


def scheme_of(database: str) -> str:
    """Return the part of an address before `://`; only this may be shown, because the rest may hold a password."""
    return database.partition("://")[0]


def is_postgres(database: str) -> bool:
    """Return whether the address is that of a PostgreSQL server."""
    return scheme_of(database) in {"postgresql", "postgres"}


def sqlite_path(database: str) -> str:
    """Return the file of a database address.

    Raises:
        SettingsError: the address is not `sqlite:///PATH`.
    """
    scheme, _, rest = database.partition("://")
    path = rest.removeprefix("/")
    if scheme != "sqlite" or not rest.startswith("/") or not path:
        raise SettingsError(
            f"The database {scheme}://… cannot be used.", hint="Use sqlite:///PATH, or postgresql://USER@HOST/NAME."
        )
    return path


@lru_cache(maxsize=256)
def to_sqlite(sql: str) -> str:
    """Translate a statement to SQLite, where a writing transaction excludes others, so that no row must be locked."""
    return sql.replace(" FOR UPDATE", "")


@lru_cache(maxsize=256)
def to_postgres(sql: str) -> str:
    """Translate a statement to psycopg's placeholders."""
    return sql.replace("%", "%%").replace("?", "%s")


def to_postgres_tables(sql: str) -> str:
    """Translate statements that create or change tables to PostgreSQL's column types."""
    for sqlite_type, postgres_type in _POSTGRES_TYPES:
        sql = sql.replace(sqlite_type, postgres_type)
    return sql
