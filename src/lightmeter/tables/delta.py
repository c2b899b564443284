"""Tables as Delta tables, for lakes that several programs share; needs `pip install 'lightmeter[delta]'`.

Each writing is one new version of each table: readers of Delta see the old version or the new one, and can go back.
A version is written only where it is not there yet, also on S3: of two writers at once the second is refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.extras import import_extra
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartInfo, read_batches, read_schema
from lightmeter.tables.uris import delta_place, is_uri, redact_uri

__all__ = ["import_deltalake", "write_delta"]

_ORNAMENT: Final = re.compile("\x1b\\[[0-9;]*m|↳")
"""Its messages are made for terminals."""

_PERMISSIVE: Final[dict[str, Any]] = {"promote_options": "permissive"}
"""Parts of older schemas fit in: what they lack is null."""


def write_delta(dataset: Dataset, place: str) -> dict[str, int]:
    """Write all tables to `<place>/<table>`; returns the new version of each.

    Delta knows no unsigned integers: bytes become 16-bit integers.

    Args:
        dataset: Tables that are there.
        place: A folder, or a URI as `publish` takes it.

    Raises:
        UsageError: deltalake is not installed, or the place is not understood or cannot be written, or somebody else
            writes there at this moment.
        OSError: The folder cannot be written.
    """
    deltalake = import_deltalake()
    root, storage = delta_place(place)
    versions = {}
    try:
        with dataset.locked():
            for table in reversed(dataset.tables()):
                if parts := dataset.describe(table):
                    where, how = f"{root}/{table}", {"mode": "overwrite", "schema_mode": "overwrite"}
                    deltalake.write_deltalake(where, _batches(parts), **how, storage_options=storage)
                    versions[table] = deltalake.DeltaTable(where, storage_options=storage).version()
    except (OSError, deltalake.exceptions.DeltaError) as error:
        if isinstance(error, OSError) and not is_uri(place):
            raise
        said = " ".join(_ORNAMENT.sub(" ", str(error)).split())
        raise UsageError(
            f"{redact_uri(place)} cannot be written as Delta: {said}", hint="Is it there, and may you write to it?"
        ) from error
    return versions


def import_deltalake() -> Any:
    """Import the library that writes Delta tables.

    Raises:
        SettingsError: it is not installed.
    """
    return import_extra("deltalake", "delta", "Writing Delta tables")


def _batches(parts: list[PartInfo]) -> pa.RecordBatchReader:
    """All rows of a table, a row group's worth at a time, in types that Delta knows."""
    own = pa.unify_schemas([read_schema(part.path) for part in parts], **_PERMISSIVE)
    schema = pa.schema([field.with_type(_signed(field.type)).remove_metadata() for field in own])

    def rows() -> Any:
        for part in parts:
            for batch in read_batches(part.path):
                whole = pa.concat_tables([own.empty_table(), pa.Table.from_batches([batch])], **_PERMISSIVE)
                yield from whole.cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, rows())


def _signed(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_uint8(arrow_type):
        return pa.int16()
    return pa.decimal128(20, 0) if pa.types.is_uint64(arrow_type) else arrow_type
