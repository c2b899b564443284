"""Writes the tables as Delta or Iceberg tables, in addition to their Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

from lightmeter.options import TableFormat
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.remote.delta import check_delta_place, import_deltalake, write_delta
from lightmeter.tables.remote.iceberg import import_pyiceberg, write_iceberg


def check_table_format(table_format: TableFormat, out: Path | None = None) -> None:
    """Raise an error if tables of a format cannot be written to an output folder.

    Args:
        table_format: The format.
        out: The output folder; None if it is not known yet.

    Raises:
        SettingsError: the package that writes the format is not installed.
        UsageError: the package cannot write to a folder of this name.
    """
    if table_format == "delta":
        import_deltalake()
        if out is not None:
            check_delta_place(str(out / table_format))
    elif table_format == "iceberg":
        import_pyiceberg()


def write_table_format(dataset: Dataset, table_format: TableFormat, place: str | None = None) -> dict[str, int]:
    """Write all tables in a format other than Parquet. Return table → new version (Delta) or snapshot id (Iceberg).

    Args:
        dataset: The tables.
        table_format: The format; nothing is written for "parquet".
        place: Folder or URI of the tables; None means a folder in the output folder, with the name of the format.

    Raises:
        SettingsError: the package that writes the format is not installed.
        UsageError: the place cannot be used.
        OSError: the folder cannot be written.
    """
    place = place or str(dataset.out / table_format)
    match table_format:
        case "delta":
            return write_delta(dataset, place)
        case "iceberg":
            return write_iceberg(dataset, place)
        case "parquet":
            return {}
        case _:
            assert_never(table_format)
