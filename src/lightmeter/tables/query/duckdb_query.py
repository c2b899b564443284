"""SQL queries over the tables of an output folder or an object store, answered by DuckDB as Arrow tables.

A query can read these tables only: no other file, no network, no Python variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from lightmeter.errors import LightmeterError, TablesError, UsageError
from lightmeter.facts.columns import ITEMS
from lightmeter.paths import local_path
from lightmeter.tables.arrow.schema import ALL_TABLES, schema
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import corrupt_file_error, read_schema
from lightmeter.tables.query.items_sql import items_sql
from lightmeter.tables.remote.read import remote_datasets
from lightmeter.tables.remote.uris import is_uri, uri_name
from lightmeter.tempdirs import LockedTempDir

if TYPE_CHECKING:
    import duckdb

_MAX_ATTEMPTS: Final = 3
"""Most attempts to run a query if a writer replaces the files of its tables meanwhile; then the query fails."""

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Otherwise a query could read any variable of the calling Python code by its name.
    "python_enable_replacements": False,
}


DUPLICATES: Final = """
CREATE VIEW duplicates AS SELECT * FROM (
  SELECT coalesce(duplicate_of, item_id) AS cluster_id, count(*) OVER (PARTITION BY cluster_id) AS members,
         item_id, url, duplicate_distance AS distance,
         CASE WHEN duplicate_of IS NULL THEN 'paid' WHEN distance IS NULL THEN 'exact' ELSE 'near' END AS kind
  FROM assets
) WHERE members > 1
"""
"""SQL of the view `duplicates`: one row for each item (manifest row) that is a duplicate or has duplicates.

Items that are duplicates of each other have the same `cluster_id`: the id of the one that is paid for.
"""


class QuerySession:
    """A DuckDB connection to the tables of one output folder or object store. Use it as a context manager.

    Several SQL queries can share it. A table that was not written yet is empty. Timestamps are in UTC. If a writer
    replaces files of a table between two queries, the second query reads the new files.

    Args:
        where: An output folder, or a URI such as `s3://bucket/prefix`.
        memory_mib: Memory limit of DuckDB, in MiB; data beyond the limit goes to temporary files. None means DuckDB's
            default limit.

    Raises:
        UsageError: The folder does not exist, or the URI cannot be read or holds no tables.
        TablesError: A file of the tables is broken.
    """

    def __init__(self, where: Path | str, *, memory_mib: int | None = None) -> None:
        self._where = where if isinstance(where, str) and is_uri(where) else local_path(where)
        self._memory_mib = memory_mib
        self._registered: dict[str, pa.Table] = {}
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
        """Return the result of one SQL query as an Arrow table; a statement without a result gives an empty table.

        `params` is a sequence of values for `?` placeholders, or a mapping for `$name` placeholders.

        Raises:
            UsageError: The query is invalid; the message is DuckDB's.
            TablesError: A file of the tables is broken.
        """
        duckdb = _duckdb()
        try:
            for _ in range(_MAX_ATTEMPTS - 1):
                try:
                    return self._execute(query, params)
                except _replaced_errors():
                    self._connection.close()
                    self._connection = self._connect()
            return self._execute(query, params)
        except duckdb.Error as error:
            raise self._query_error(error) from error

    def batches(self, query: str, batch_rows: int = 16 * 1024) -> Iterator[pa.RecordBatch]:
        """Yield the result of an SQL query in batches of up to `batch_rows` rows, never the whole result in memory.

        Read all batches before the next query in this session, which discards the rest of this result. If a writer
        replaces files of the tables meanwhile, raise TablesError: unlike `ask`, do not try the query again.

        Raises:
            UsageError: The query is invalid; the message is DuckDB's.
            TablesError: A file of the tables is broken, or was replaced.
        """
        try:
            result = self._connection.sql(query)
            if result is not None:
                yield from result.to_arrow_reader(batch_rows)
        except _duckdb().Error as error:
            raise self._query_error(error) from error
        except (pa.ArrowException, OSError) as error:  # an error of DuckDB after the first batch
            raise corrupt_file_error(self._where, "a table", error) from error

    def register(self, name: str, table: pa.Table) -> None:
        """Make an Arrow table available to the queries of this session as the view `name`."""
        self._registered[name] = table
        self._connection.register(name, table)

    def _execute(self, query: str, params: Sequence[Any] | Mapping[str, Any] | None) -> pa.Table:
        bound = dict(params) if isinstance(params, Mapping) else list(params or ())
        result = self._connection.sql(query, params=bound or None)
        table: pa.Table = pa.table({}) if result is None else result.to_arrow_table()
        return table

    def _connect(self) -> duckdb.DuckDBPyConnection:
        duckdb = _duckdb()
        try:
            for _ in range(_MAX_ATTEMPTS - 1):
                with suppress(*_replaced_errors()):  # a part was replaced after it was listed
                    return self._open_connection()
            return self._open_connection()
        except duckdb.Error as error:
            raise self._read_error(error) from error

    def _open_connection(self) -> duckdb.DuckDBPyConnection:
        config = {**_CONFIG, "temp_directory": self._spill}
        connection: duckdb.DuckDBPyConnection = _duckdb().connect(":memory:", config=config)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")  # otherwise it is written to standard output
        if self._memory_mib is not None:
            connection.execute(f"SET memory_limit = '{self._memory_mib}MiB'")
        if isinstance(self._where, str) and is_uri(self._where):
            for table, dataset in remote_datasets(self._where).items():
                connection.register(table, dataset)
        else:
            _add_views(connection, Path(self._where))
        if not connection.execute("FROM duckdb_views() WHERE view_name = 'duplicates'").fetchall():
            connection.execute(DUPLICATES)
        for name, registered in self._registered.items():
            connection.register(name, registered)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def _query_error(self, error: duckdb.Error) -> LightmeterError:
        if _is_read_error(error):
            return self._read_error(error)
        names = self._connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY view_oid")
        hint = f"Tables: {', '.join(name for (name,) in names.fetchall())}."
        return UsageError(f"the query cannot be answered: {error}", hint=hint)

    def _read_error(self, error: duckdb.Error) -> LightmeterError:
        """Return the error to raise if DuckDB cannot read the tables; it names the broken file if that can be found."""
        if isinstance(self._where, str) and is_uri(self._where):
            place = uri_name(self._where)
            return TablesError(
                f"{place} cannot be read: {error}.",
                hint=f"Put the tables there again: lightmeter rebuild DIR --to {place}",
            )
        dataset = Dataset(Path(self._where))
        try:
            for table in dataset.tables():
                dataset.describe(table)
        except TablesError as broken:
            return broken
        return corrupt_file_error(self._where, dataset.out / "tables", error)


TablesSource = Path | str | QuerySession
"""Where the tables are: an output folder, a URI such as `s3://bucket/prefix`, or an open session."""


def sql(where: TablesSource, query: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> pa.Table:
    """Return the result of one SQL query as an Arrow table; a statement without a result gives an empty table.

    Args:
        where: An output folder, a URI such as `s3://bucket/prefix`, or an open session.
        query: SQL text.
        params: A sequence of values for `?` placeholders, or a mapping for `$name` placeholders.

    Raises:
        UsageError: The folder does not exist, the URI cannot be read or holds no tables, or the query is invalid.
        TablesError: A file of the tables is broken.
    """
    with open_session(where) as tables:
        return tables.ask(query, params)


def open_session(where: TablesSource) -> AbstractContextManager[QuerySession]:
    """Return a context manager that gives a session for `where`.

    The end of the block closes the session, unless `where` itself is an open session.
    """
    return nullcontext(where) if isinstance(where, QuerySession) else QuerySession(where)


def _duckdb() -> ModuleType:
    """Return the module `duckdb`, imported only now: that takes a tenth of a second, and few commands query tables."""
    return import_module("duckdb")


def _replaced_errors() -> tuple[type[duckdb.Error], ...]:
    """Return the exceptions that DuckDB may raise if a writer replaced a Parquet file.

    The caller then tries again. They include PermissionException, because DuckDB reports a missing file as one that it
    may not read; and InvalidInputException, because it reports a broken Arrow stream as invalid input.
    """
    duckdb = _duckdb()
    return duckdb.IOException, duckdb.PermissionException, duckdb.InvalidInputException


def _is_read_error(error: duckdb.Error) -> bool:
    """Return whether DuckDB's error is about a broken Parquet file.

    That is assumed if an input error names a Parquet file, or if the class of the error is `duckdb.Error` itself.
    """
    duckdb = _duckdb()
    names_file = isinstance(error, duckdb.IOException | duckdb.InvalidInputException) and ".parquet" in str(error)
    return names_file or type(error) is duckdb.Error


def _add_views(connection: duckdb.DuckDBPyConnection, out: Path) -> None:
    if not out.is_dir():
        raise UsageError(f"there is no folder {out}", hint="Name the output folder of a run.")
    dataset = Dataset(out.absolute())
    dataset.check_version()
    parts_by_table = {table: dataset.parts(table) for table in dict.fromkeys((*ALL_TABLES, *dataset.tables()))}
    for table, parts in parts_by_table.items():
        if parts:
            _add_view(connection, table, parts)
        elif table == ITEMS and parts_by_table["assets"]:  # during a run, it has no file yet
            schemas = [read_schema(part) for part in parts_by_table["assets"]]
            assets = pa.unify_schemas(schemas, promote_options="permissive")
            connection.execute(f"CREATE OR REPLACE VIEW {ITEMS} AS {items_sql(assets)}")
        elif table in ALL_TABLES:
            connection.register(table, _no_rows(schema(table)))
    allowed = [path for parts in parts_by_table.values() for part in parts for path in {str(part), _glob(part)}]
    connection.execute(f"SET allowed_paths = [{_literals(allowed)}]")


def _no_rows(table_schema: pa.Schema) -> pa.Table:
    """Return a table without rows.

    Unlike `Schema.empty_table`, this function does not import pandas, which takes 50 MB and half a second.
    """
    return pa.Table.from_batches([], schema=table_schema)


def _add_view(connection: duckdb.DuckDBPyConnection, table: str, parts: Sequence[Path]) -> None:
    """Create the view `table` over the rows of the Parquet files `parts`.

    If an older lightmeter wrote the files, they may lack columns of the table: these are null in the view.
    """
    # With Hive partitioning, a folder `key=value` on the path to the tables would add or replace a column of each.
    options = "union_by_name = true, hive_partitioning = false"
    files = f"read_parquet([{_literals(map(_glob, parts))}], {options})"
    create = f'CREATE OR REPLACE VIEW "{table}" AS SELECT *'
    connection.execute(f"{create} FROM {files}")
    if table in ALL_TABLES:
        written = connection.view(table).columns
        if missing := [field for field in schema(table) if field.name not in written]:
            types = connection.from_arrow(_no_rows(pa.schema(missing)))
            nulls = "".join(
                f', NULL::{kind} AS "{name}"' for name, kind in zip(types.columns, types.types, strict=True)
            )
            connection.execute(f"{create}{nulls} FROM {files}")


def _glob(path: Path) -> str:
    """Return the glob pattern that matches `path` only: DuckDB takes each file name for a pattern."""
    return re.sub(r"[*?[]", r"[\g<0>]", str(path))


def _literals(texts: Iterable[str]) -> str:
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
