"""Export of the tables as Apache Iceberg tables; needs `pip install 'lightmeter[iceberg]'`.

Each export adds a version to each Iceberg table. Iceberg replaces one table in one step, but not several: a reader that
asks the catalog for two tables may get one from before and one from after an export.

So each export ends by replacing, in one step, the file `export.json` beside the tables, its commit marker. The marker
names the snapshot and the metadata file of every table of the export. These stay unchanged until somebody expires
snapshots. So a reader that follows the marker sees either all tables of an export or none. If an export is killed, the
marker still names the previous export.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from lightmeter import atomic
from lightmeter.errors import UsageError
from lightmeter.extras import import_extra
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.remote.delta import signed_batches
from lightmeter.tables.remote.uris import file_system, is_uri, uri_name

CATALOG_NAME: Final = "lightmeter"
"""Name of the user's catalog in the settings of pyiceberg, and the default namespace of the tables in this catalog."""

MARKER: Final = "export.json"
"""Name of the commit marker: the file that an export writes last, and that names the tables of the export."""

_CATALOG_HINT: Final = (
    "Describe a catalog: PYICEBERG_CATALOG__LIGHTMETER__URI, PYICEBERG_CATALOG__LIGHTMETER__TYPE, …, or the catalog "
    "`lightmeter` in .pyiceberg.yaml."
)


def write_iceberg(dataset: Dataset, place: str) -> dict[str, int]:
    """Write each table to the Iceberg table `<place>/<table>`. Return table → id of its new snapshot.

    At the end, write the file `export.json`, which names these snapshots. If pyiceberg's own settings describe a
    catalog with the name `lightmeter` (PYICEBERG_CATALOG__LIGHTMETER__…), that catalog is used, else a SQLite file in
    `place`. Iceberg has no unsigned integers: `uint8` becomes `int`, and `uint64` becomes a decimal number.

    Args:
        dataset: The tables to export.
        place: A folder, or a URI such as `s3://bucket/prefix`, which needs a catalog of the user.

    Raises:
        SettingsError: pyiceberg is not installed.
        UsageError: there is no catalog for a URI, the place or the catalog cannot be used, another program is writing
            there, or the catalog has tables of these names elsewhere.
        OSError: The folder cannot be written.
    """
    import_pyiceberg()
    root = uri_name(place).rstrip("/") if is_uri(place) else _local_root(Path(place))
    with _translated_errors(place), dataset.locked(), closing(_open_catalog(place, root)) as catalog:
        namespace = catalog.properties.get("namespace", CATALOG_NAME)
        catalog.create_namespace_if_not_exists(namespace)
        written = {
            table: _write_table(catalog, f"{namespace}.{table}", f"{root}/{table}", *signed_batches(parts))
            for table in reversed(dataset.tables())
            if (parts := dataset.describe(table))
        }
        marker = {
            "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "tables": {
                table: {"snapshot_id": stored.current_snapshot().snapshot_id, "metadata": stored.metadata_location}
                for table, stored in written.items()
            },
        }
        _write_marker(place, json.dumps(marker, indent=1) + "\n")
    return {table: stored.current_snapshot().snapshot_id for table, stored in written.items()}


def read_iceberg(place: str) -> dict[str, pa.Table]:
    """Return table name → its rows, for all tables of the last complete export in `place`, a folder or a URI.

    The file `export.json`, which an export writes at its end, says which tables and snapshots these are.

    Raises:
        SettingsError: pyiceberg is not installed.
        UsageError: there is no export, or it cannot be read.
    """
    static_table = import_pyiceberg().StaticTable
    with _translated_errors(place):
        files, root = file_system(place) if is_uri(place) else (fs.LocalFileSystem(), place.rstrip("/"))
        with files.open_input_stream(f"{root}/{MARKER}") as stream:
            marker = json.loads(stream.read())
        settings = _catalog_settings()  # for the keys of an object store
        return {
            table: static_table.from_metadata(one["metadata"], settings).scan(snapshot_id=one["snapshot_id"]).to_arrow()
            for table, one in marker["tables"].items()
        }


def import_pyiceberg() -> Any:
    """Return the module `pyiceberg.table`.

    Raises:
        SettingsError: pyiceberg is not installed.
    """
    import_extra("pyiceberg.catalog.sql", "iceberg", "Writing Iceberg tables")
    return import_extra("pyiceberg.table", "iceberg", "Writing Iceberg tables")


def _local_root(folder: Path) -> str:
    """Return the location of a folder for pyiceberg: its URI, or its path if the URI needs percent-encoding.

    pyiceberg does not decode URIs: it would write to a folder `my%20tables` in place of `my tables`.
    """
    path = str(folder.absolute())
    return f"file://{path}" if quote(path) == path else path


def _open_catalog(place: str, root: str) -> Any:
    """Return the catalog `lightmeter` of pyiceberg's settings.

    If the settings have no such catalog, return one in a SQLite file in the folder `place`. `root` is the URI of
    `place`.

    Raises:
        UsageError: `place` is a URI, and the settings have no such catalog.
    """
    catalogs = import_extra("pyiceberg.catalog", "iceberg", "Writing Iceberg tables")
    if settings := _catalog_settings():
        return catalogs.load_catalog(CATALOG_NAME, **settings)
    if is_uri(place):
        raise UsageError(f"Iceberg tables at {uri_name(place)} need a catalog.", hint=_CATALOG_HINT)
    Path(place).mkdir(parents=True, exist_ok=True)
    database = quote(str(Path(place).absolute() / "catalog.db"))  # a `?` begins the options of SQLAlchemy
    return catalogs.load_catalog(CATALOG_NAME, type="sql", uri=f"sqlite:///file:{database}?uri=true", warehouse=root)


def _catalog_settings() -> dict[str, Any]:
    """Return the properties of the catalog `lightmeter` in pyiceberg's settings; empty if there is no such catalog."""
    config = import_extra("pyiceberg.utils.config", "iceberg", "Iceberg tables").Config()
    return config.get_catalog_config(CATALOG_NAME) or {} if CATALOG_NAME in config.get_known_catalogs() else {}


def _write_table(catalog: Any, name: str, location: str, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> Any:
    """Replace all rows of an Iceberg table, and its columns if they differ, in one commit; return the table.

    Args:
        catalog: The catalog of pyiceberg.
        name: Name of the table in the catalog.
        location: URI of its files.
        schema: Its columns.
        rows: All its rows.

    Raises:
        UsageError: the catalog has a table of this name at another location.
    """
    reader = pa.RecordBatchReader.from_batches(schema, rows)
    table = catalog.create_table_if_not_exists(name, schema=schema, location=location)
    if table.location().rstrip("/") != location:
        raise UsageError(
            f"The catalog has {name} at {table.location()}, not at {location}.",
            hint="Name another namespace: PYICEBERG_CATALOG__LIGHTMETER__NAMESPACE.",
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Delete operation did not match any records")
        with table.transaction() as transaction:
            _update_columns(transaction, table, schema)
            transaction.overwrite(reader)
    return table


def _update_columns(transaction: Any, table: Any, schema: pa.Schema) -> None:
    """Add the columns of `schema` that a table lacks, and replace those of another type.

    Columns not in `schema` stay; rows that are written later have null there.

    `table` is pyiceberg's table; `transaction` is an open transaction on it.
    """
    now = {field.name: field.type for field in table.schema().as_arrow()}
    wanted = {field.name: field.type for field in _as_iceberg(schema)}
    changed = [name for name, of in wanted.items() if name in now and str(now[name]) != str(of)]
    if changed:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in changed:
                update.delete_column(name)
    if changed or wanted.keys() - now.keys():
        with transaction.update_schema() as update:
            update.union_by_name(schema)


def _as_iceberg(schema: pa.Schema) -> pa.Schema:
    """Return an Arrow schema converted to Iceberg's types and back, for comparison with an Iceberg table's schema."""
    stored = import_extra("pyiceberg.io.pyarrow", "iceberg", "Writing Iceberg tables")
    converted: pa.Schema = stored.schema_to_pyarrow(stored._pyarrow_to_schema_without_ids(schema))  # noqa: SLF001 (no other way)
    return converted


def _write_marker(place: str, text: str) -> None:
    if not is_uri(place):
        atomic.write_text(Path(place) / MARKER, text)
        return
    files, root = file_system(place)  # a store shows an object once all its bytes are there
    with files.open_output_stream(f"{root}/{MARKER}") as stream:
        stream.write(text.encode())


@contextmanager
def _translated_errors(place: str) -> Iterator[None]:
    """Raise UsageError for the errors of pyiceberg in the block; raise an OSError of a local folder as it is.

    `place` is the folder or URI of the tables.
    """
    iceberg = import_extra("pyiceberg.exceptions", "iceberg", "Iceberg tables")
    alchemy = import_extra("sqlalchemy.exc", "iceberg", "Iceberg tables")
    own = tuple(one for one in vars(iceberg).values() if isinstance(one, type) and issubclass(one, Exception))
    try:
        yield
    except (OSError, ValueError, pa.ArrowException, alchemy.SQLAlchemyError, *own) as error:
        if isinstance(error, OSError) and not is_uri(place):
            raise
        message = " ".join(str(error).split())
        raise UsageError(
            f"{uri_name(place)} cannot be used for Iceberg: {message}", hint="Is it there, and may you write to it?"
        ) from error
