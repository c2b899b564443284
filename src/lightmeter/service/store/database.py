"""What the service remembers, and the few words it needs to ask either database: one set of SQL for both.

The SQL of this service is small and plain, and both databases read it as it stands but for three things: the mark of a
parameter, the names of column types, and `FOR UPDATE`, which SQLite neither knows nor needs. Those are translated
here. (SQLAlchemy Core would say the same in its own language; it was weighed, and is a second vocabulary for forty
statements.)
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

_POSTGRES_WORDS: Final = (
    ("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    ("INTEGER", "BIGINT"),
    ("REAL", "DOUBLE PRECISION"),
    ("BLOB", "BYTEA"),
    (") STRICT", ")"),
)


class StoreError(LightmeterError):
    """The database failed in the middle of something: it cannot be known whether that was written."""


class Connection(Protocol):
    """A transaction on either database."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; `?` marks a parameter. Returns its rows."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of parameters."""
        ...


def scheme_of(database: str) -> str:
    """The part of an address before `://`: all of it that may be shown, because there may be a password in the rest."""
    return database.partition("://")[0]


def is_postgres(database: str) -> bool:
    """Whether the address names a PostgreSQL server."""
    return scheme_of(database) in {"postgresql", "postgres"}


def sqlite_path(database: str) -> str:
    """The file that a database address names.

    Raises:
        SettingsError: it is no `sqlite:///PATH`.
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
    """A statement as SQLite wants it: a transaction that writes is alone there, so no row has to be locked."""
    return sql.replace(" FOR UPDATE", "")


@lru_cache(maxsize=256)
def to_postgres(sql: str) -> str:
    """A statement as psycopg wants it."""
    return sql.replace("%", "%%").replace("?", "%s")


def to_postgres_tables(sql: str) -> str:
    """Statements that make or change tables, in PostgreSQL's words."""
    for ours, theirs in _POSTGRES_WORDS:
        sql = sql.replace(ours, theirs)
    return sql
