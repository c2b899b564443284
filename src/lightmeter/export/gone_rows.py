"""Marks rows in the Parquet files of the table `assets` as `gone`, without exporting them from the journals again.

All rows of an earlier run are gone if the newest run has none of its items (rows of a manifest, by their ids).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa

from lightmeter.tables.dataset import Dataset
from lightmeter.tables.parts import PartInfo, PartWriter, read_batches, read_schema

_ALL_GONE: Final = "all_gone"
"""Entry of a file's lineage: whether all rows of the file have the reason `gone`."""


def mark_gone(dataset: Dataset, newest_run: str) -> None:
    """Give the reason `gone` to all rows of earlier runs in the table `assets`.

    Call it only inside a block of `Dataset.locked`, and only if the earlier runs have no item of the newest run. A file
    that is marked already is not written again.

    Args:
        dataset: The tables.
        newest_run: Id of the newest run.

    Raises:
        TablesError: A file cannot be read.
        OSError: A file cannot be written.
    """
    parts = dataset.describe("assets")
    stale = [part for part in parts if newest_run not in part.runs and not part.lineage.get(_ALL_GONE)]
    if not stale:
        return
    with dataset.staging() as staging:
        (staging / "assets").mkdir()
        for number, part in enumerate(stale):
            _write_marked(part, staging / "assets" / f"{number:05}.parquet")
        dataset.publish(staging, keep_others=True)


def _write_marked(part: PartInfo, path: Path) -> None:
    """Write the rows of `part` to a new file at `path`, all with the reason `gone`."""
    schema = read_schema(part.path)
    place = schema.get_field_index("reason")
    writer = PartWriter(path, schema, {**part.lineage, _ALL_GONE: True})
    try:
        for batch in read_batches(part.path):
            reasons = pa.repeat("gone", batch.num_rows).cast(schema.field(place).type)
            writer.write(pa.Table.from_batches([batch]).set_column(place, schema.field(place), reasons))
        writer.close()
    finally:
        writer.abandon()
