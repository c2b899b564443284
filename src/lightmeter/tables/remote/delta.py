"""Export of the tables as Delta Lake tables; needs `pip install 'lightmeter[delta]'`.

Each export adds one version to each Delta table. Readers see the old version or the new one, and can read older ones. A
version is never overwritten, not even on S3: if two writers export at the same time, the second gets an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.extras import import_extra
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartInfo, read_batches, read_schema
from lightmeter.tables.remote.uris import delta_place, is_uri, uri_name

_TERMINAL_MARKUP: Final = re.compile("\x1b\\[[0-9;]*m|↳")
"""Matches color codes and arrows in the error messages of deltalake, which are removed."""

_REFUSED: Final = re.compile(r"[\x00-\x1f\x7f\[\]^|\\]|%[0-9A-Fa-f]{2}")
"""Matches what the path of a folder must not have: deltalake panics, or writes to another folder."""

_PERMISSIVE: Final[dict[str, Any]] = {"promote_options": "permissive"}
"""Arrow's option to combine files with older schemas: columns that a file lacks are null."""


def write_delta(dataset: Dataset, place: str) -> dict[str, int]:
    """Write each table to the Delta table `<place>/<table>`. Return table → its new version number.

    Delta has no unsigned integers: `uint8` becomes `int16`, and `uint64` becomes a decimal number.

    Args:
        dataset: The tables to export.
        place: A folder, or a URI such as `s3://bucket/prefix`.

    Raises:
        UsageError: deltalake is not installed, it cannot write to a folder of this name, the URI is invalid or cannot
            be written, or another program is writing there.
        OSError: The folder cannot be written.
    """
    deltalake = import_deltalake()
    check_delta_place(place)
    root, storage = delta_place(place)
    versions = {}
    try:
        with dataset.locked():
            for table in reversed(dataset.tables()):
                if parts := dataset.describe(table):
                    where, how = f"{root}/{table}", {"mode": "overwrite", "schema_mode": "overwrite"}
                    reader = pa.RecordBatchReader.from_batches(*signed_batches(parts))
                    deltalake.write_deltalake(where, reader, **how, storage_options=storage)
                    versions[table] = deltalake.DeltaTable(where, storage_options=storage).version()
    except (OSError, deltalake.exceptions.DeltaError) as error:
        if isinstance(error, OSError) and not is_uri(place):
            raise
        message = " ".join(_TERMINAL_MARKUP.sub(" ", str(error)).split())
        raise UsageError(
            f"{uri_name(place)} cannot be written as Delta: {message}", hint="Is it there, and may you write to it?"
        ) from error
    return versions


def import_deltalake() -> Any:
    """Return the module `deltalake`, which writes Delta tables.

    Raises:
        SettingsError: deltalake is not installed.
    """
    return import_extra("deltalake", "delta", "Writing Delta tables")


def check_delta_place(place: str) -> None:
    """Raise UsageError if deltalake cannot write to the folder `place` because of its path. A URI is not checked."""
    found = None if is_uri(place) else _REFUSED.search(str(Path(place).resolve()))
    if found is not None:
        raise UsageError(
            f"Delta tables cannot be written to {place}: deltalake does not read paths with {found[0]!r}.",
            hint="Choose another folder, or --format parquet.",
        )


def signed_batches(parts: list[PartInfo]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and all rows of `parts`, the Parquet files of a table, without unsigned integer types.

    `uint8` becomes `int16`, and `uint64` becomes `decimal128(20, 0)`.
    """
    unified = pa.unify_schemas([read_schema(part.path) for part in parts], **_PERMISSIVE)
    schema = pa.schema([field.with_type(_signed(field.type)).remove_metadata() for field in unified])

    def rows() -> Iterator[pa.RecordBatch]:
        for part in parts:
            for batch in read_batches(part.path):
                whole = pa.concat_tables([unified.empty_table(), pa.Table.from_batches([batch])], **_PERMISSIVE)
                yield from whole.cast(schema).to_batches()

    return schema, rows()


def _signed(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_uint8(arrow_type):
        return pa.int16()
    return pa.decimal128(20, 0) if pa.types.is_uint64(arrow_type) else arrow_type
