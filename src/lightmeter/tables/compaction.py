"""Merging of a table's small Parquet files into one large file, which readers scan faster. Rows do not change."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from lightmeter.errors import TablesError
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartInfo, PartWriter, read_batches, read_schema


@dataclass(frozen=True, slots=True)
class Compaction:
    """Result of merging a table's Parquet files: how many files it had before and has now, and its number of rows."""

    table: str
    parts_before: int
    parts_after: int
    rows: int


def compact(dataset: Dataset) -> list[Compaction]:
    """Merge the Parquet files of each table into one file.

    Return a result for each table, even if it had only one file and nothing was merged. At every instant, readers see
    either the old files or the new one. At most a few Parquet row groups are in memory at the same time.

    Raises:
        UsageError: The file system cannot swap folders, another version of lightmeter wrote the tables, or the files
            have columns of incompatible types.
        TablesError: A file cannot be read or written; that table stays unchanged.
    """
    try:
        with dataset.locked():
            dataset.check_version()
            return [_compact(dataset, table) for table in dataset.tables()]
    except OSError as error:
        raise TablesError(
            f"The tables cannot be written: {error}.", hint="Make room, or make the folder writable, and try again."
        ) from error


def _compact(dataset: Dataset, table: str) -> Compaction:
    parts = dataset.describe(table)
    if len(parts) > 1:
        with dataset.staging() as staging:
            (staging / table).mkdir()
            merge_into(staging / table / "00000.parquet", parts)
            dataset.publish(staging)
    return Compaction(table, len(parts), min(len(parts), 1), sum(part.rows for part in parts))


def merge_into(path: Path, parts: list[PartInfo]) -> Path:
    """Write the rows of `parts`, Parquet files of one table, to a new file at `path`, and return `path`."""
    schemas = [read_schema(part.path) for part in parts]
    newest = schemas[-1].metadata
    schema = pa.unify_schemas(schemas, promote_options="permissive").with_metadata(newest)
    runs = dict(chain.from_iterable(part.runs.items() for part in parts))
    writer = PartWriter(path, schema, {**parts[-1].lineage, "runs": runs})
    try:
        for part in parts:
            for batch in read_batches(part.path):
                writer.write(pa.Table.from_batches([batch]))
        writer.close()
    finally:
        writer.abandon()
    return path
