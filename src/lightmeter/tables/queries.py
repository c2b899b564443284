"""DuckDB over the tables of an output folder or of a shared place: SQL in, Arrow out, nothing else within reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import pyarrow as pa

from lightmeter.errors import LightmeterError, TablesError, UsageError
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import corrupt_file_error
from lightmeter.tables.remote_read import remote_datasets
from lightmeter.tables.schema import ALL_TABLES, schema
from lightmeter.tables.uris import is_uri, redact_uri
from lightmeter.tempdirs import LockedTempDir

__all__ = ["QuerySession", "TablesSource", "sql"]

_TRIES: Final = 3
"""How often a query is asked when the files of a table are replaced under it."""

_MOVED: Final = (duckdb.IOException, duckdb.PermissionException, duckdb.InvalidInputException)
"""What DuckDB raises then: a name that is gone is one that it may not look for, a stream of Arrow's is wrong input."""

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Else any variable of the calling Python code could be queried by its name.
    "python_enable_replacements": False,
}


class QuerySession:
    """The tables as they are now, open for several questions. Use it as a context manager.

    A table not written yet is an empty view. Files elsewhere cannot be read or written, moments are shown in UTC. When
    parts are replaced between two questions, the next one sees the new ones.

    Args:
        where: An output folder, or the URI of a shared place: `s3://bucket/prefix`.
        memory_mb: What DuckDB may hold in memory, in MiB; what is more goes to temporary files. None: its default.

    Raises:
        UsageError: There is no such folder, or no table in that place.
        TablesError: A file of the tables is broken.
    """

    def __init__(self, where: Path | str, *, memory_mb: int | None = None) -> None:
        self._where = where
        self._memory_mb = memory_mb
        with ExitStack() as stack:
            self._spill = str(stack.enter_context(LockedTempDir()).path)
            self._connection = self._connect()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._stack.close()

    def ask(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> pa.Table:
        """The answer to one query; empty for a statement that answers nothing.

        Parameters are a sequence for `?`, or a mapping for `$name`.

        Raises:
            UsageError: The query is wrong; the message is DuckDB's.
            TablesError: A file of the tables is broken.
        """
        try:
            for _ in range(_TRIES - 1):
                try:
                    return self._answer(query, params)
                except _MOVED:
                    self._connection.close()
                    self._connection = self._connect()
            return self._answer(query, params)
        except duckdb.Error as error:
            if _says_broken(error):
                raise self._broken(error) from error
            raise UsageError(
                f"the query cannot be answered: {error}", hint=f"Tables: {', '.join(ALL_TABLES)}."
            ) from error

    def _answer(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None) -> pa.Table:
        bound = dict(params) if isinstance(params, Mapping) else list(params or ())
        answer = self._connection.sql(query, params=bound or None)
        table: pa.Table = pa.table({}) if answer is None else answer.to_arrow_table()
        return table

    def _connect(self) -> duckdb.DuckDBPyConnection:
        try:
            for _ in range(_TRIES - 1):
                with suppress(*_MOVED):  # a part was replaced between its listing and its opening
                    return self._connected()
            return self._connected()
        except duckdb.Error as error:
            raise self._broken(error) from error

    def _connected(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:", config={**_CONFIG, "temp_directory": self._spill})
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")  # it would be drawn into what a pipe or a file receives
        if self._memory_mb is not None:
            connection.execute(f"SET memory_limit = '{self._memory_mb}MiB'")
        if isinstance(self._where, str) and is_uri(self._where):
            for table, dataset in remote_datasets(self._where).items():
                connection.register(table, dataset)
        else:
            _add_views(connection, Path(self._where))
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def _broken(self, error: duckdb.Error) -> LightmeterError:
        """The error that names the file whose footer is broken, or says what DuckDB says."""
        if isinstance(self._where, str) and is_uri(self._where):
            place = redact_uri(self._where)
            return TablesError(
                f"{place} cannot be read: {error}.",
                hint=f"Put the tables there again: lightmeter rebuild DIR --to {place}",
            )
        dataset = Dataset(Path(self._where))
        try:
            for table in dataset.tables():
                dataset.describe(table)
        except TablesError as found:
            return found
        return corrupt_file_error(self._where, dataset.out / "tables", error)


TablesSource = Path | str | QuerySession
"""Where tables are: an output folder, the URI of a shared place, or tables that are open already."""


def sql(where: TablesSource, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> pa.Table:
    """The answer to one query, as `QuerySession.ask` gives it.

    Raises:
        UsageError: There is no such folder, no table in that place, or the query is wrong; the message is DuckDB's.
    """
    if isinstance(where, QuerySession):
        return where.ask(query, params)
    with QuerySession(where) as tables:
        return tables.ask(query, params)


def _says_broken(error: duckdb.Error) -> bool:
    """Whether DuckDB speaks of a broken file: it names it, or has no class for what its decoder says."""
    named = isinstance(error, duckdb.IOException | duckdb.InvalidInputException) and ".parquet" in str(error)
    return named or type(error) is duckdb.Error


def _add_views(connection: duckdb.DuckDBPyConnection, out: Path) -> None:
    if not out.is_dir():
        raise UsageError(f"there is no folder {out}", hint="Name the output folder of a run.")
    dataset = Dataset(out.absolute())
    known = {table: dataset.parts(table) for table in dict.fromkeys((*ALL_TABLES, *dataset.tables()))}
    for table, parts in known.items():
        if parts:
            files = f"read_parquet([{_literals(parts)}], union_by_name = true)"
            view = f'CREATE VIEW "{table}" AS SELECT * FROM {files}'  # noqa: S608 (our own names; paths are quoted)
            connection.execute(view)
        elif table in ALL_TABLES:
            connection.register(table, schema(table).empty_table())
    connection.execute(f"SET allowed_paths = [{_literals([part for parts in known.values() for part in parts])}]")


def _literals(paths: list[Path]) -> str:
    """Paths as a list of SQL texts."""
    return ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
