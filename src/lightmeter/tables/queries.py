"""SQL over the tables, by DuckDB: one view for each table, and nothing else in reach.

The connection is in memory, sees only the files below `tables/`, and fetches no extension from anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.schema import TABLES, schema

__all__ = ["connect", "sql"]

_TRIES: Final = 3
"""How often a query is asked when the files of a table are replaced under it."""

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Else any variable of the calling Python code could be queried by its name.
    "python_enable_replacements": False,
}


def connect(out: Path) -> duckdb.DuckDBPyConnection:
    """A connection with a view for each table as it is now; a table not written yet is an empty view.

    Files elsewhere cannot be read or written, moments are shown in UTC.

    Raises:
        UsageError: There is no such folder.
    """
    if not out.is_dir():
        raise UsageError(f"there is no folder {out}", hint="Name the output folder of a run.")
    dataset = Dataset(out.absolute())
    connection = duckdb.connect(":memory:", config=_CONFIG)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")  # it would be drawn into what a pipe or a file receives
    for table in TABLES:
        _add_view(connection, dataset, table)
    connection.execute(f"SET allowed_paths = [{_literals([p for t in TABLES for p in dataset.parts(t)])}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def sql(out: Path, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> pa.Table:
    """The answer to one query over the tables of `out`; empty for a statement that answers nothing.

    Parameters are a sequence for `?`, or a mapping for `$name`.

    Raises:
        UsageError: There is no such folder, or the query is wrong; the message is DuckDB's.
    """
    for _ in range(_TRIES - 1):
        try:
            return _answer(out, query, params)
        except duckdb.IOException:  # parts were merged between listing and reading
            continue
        except duckdb.Error as error:
            raise _wrong(error) from error
    try:
        return _answer(out, query, params)
    except duckdb.Error as error:
        raise _wrong(error) from error


def _answer(out: Path, query: str, params: Sequence[Any] | Mapping[str, Any] | None) -> pa.Table:
    with connect(out) as connection:
        bound = dict(params) if isinstance(params, Mapping) else list(params or ())
        answer = connection.sql(query, params=bound or None)
        table: pa.Table = pa.table({}) if answer is None else answer.to_arrow_table()
    return table


def _wrong(error: duckdb.Error) -> UsageError:
    return UsageError(f"the query cannot be answered: {error}", hint=f"Tables: {', '.join(TABLES)}.")


def _add_view(connection: duckdb.DuckDBPyConnection, dataset: Dataset, table: str) -> None:
    parts = dataset.parts(table)
    if parts:
        files = f"read_parquet([{_literals(parts)}], union_by_name = true)"
        view = f'CREATE VIEW "{table}" AS SELECT * FROM {files}'  # noqa: S608 (our own names; paths are quoted)
        connection.execute(view)
    else:
        connection.register(table, schema(table).empty_table())


def _literals(paths: list[Path]) -> str:
    """Paths as a list of SQL texts."""
    return ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
