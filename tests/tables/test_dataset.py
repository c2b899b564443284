"""Tables on disk: replaced whole, or not at all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.errors import UsageError
from lightmeter.tables import SCHEMA_VERSION, Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.dataset import GRACE_S
from lightmeter.tables.parts import ROW_GROUP_ROWS
from tests.tables.replace_table import replace_table, replace_tables

TAGS = schema("tags")


def tags(*names: str) -> pa.Table:
    columns = {field.name: pa.nulls(len(names), field.type) for field in TAGS}
    return pa.table({**columns, "name": pa.array(names, pa.string())}, schema=TAGS)


def rows_by_glob(out: Path) -> list[str]:
    """Return the rows that a reader with a glob finds now."""
    files = sorted((out / "tables" / "tags").glob("*.parquet"))
    return [name for file in files for name in pq.ParquetFile(file).read()["name"].to_pylist()]


def save(out: Path, *names: str) -> None:
    with replace_table(Dataset(out), "tags", TAGS, {"run_id": "r"}) as part:
        part.write(tags(*names))


def test_a_reader_sees_the_old_table_until_the_new_one_is_whole(tmp_path):
    """While a table is written again its readers see the old rows, then all of the new ones, and nothing else."""
    save(tmp_path, "old")
    with replace_table(Dataset(tmp_path), "tags", TAGS, {}) as part:
        part.write(tags("new", "newer"))
        part.flush()
        assert rows_by_glob(tmp_path) == ["old"]
    assert rows_by_glob(tmp_path) == ["new", "newer"]


def test_a_failed_writer_changes_nothing(tmp_path):
    """If writing fails, the old table stays and no other file is left."""
    save(tmp_path, "old")

    def break_off():
        with replace_table(Dataset(tmp_path), "tags", TAGS, {}) as part:
            part.write(tags("new"))
            part.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert rows_by_glob(tmp_path) == ["old"]
    assert [path.name for path in (tmp_path / "tables" / "tags").iterdir()] == ["part-00000.parquet"]


def test_one_part_replaces_all_parts_and_what_a_killed_writer_left(tmp_path):
    """An export leaves one part, with a new name, and removes the files of a killed writer."""
    save(tmp_path, "old")
    folder = Dataset(tmp_path).table_folder("tags")
    pq.write_table(tags("older"), folder / "part-00001.parquet")
    left, now = tmp_path / ".staging-12ab", time.time()
    (left / "tags").mkdir(parents=True)
    torn, young = tmp_path / ".views.sql.12ab.tmp", tmp_path / ".report.html.34cd.tmp"
    for path in (torn, young):
        path.touch()
    for path in (left, torn):
        os.utime(path, (now, now - GRACE_S - 10))
    save(tmp_path, "new")
    assert rows_by_glob(tmp_path) == ["new"]
    assert [path.name for path in folder.iterdir()] == ["part-00002.parquet"]
    assert not left.exists()
    assert not torn.exists()
    assert young.exists()  # somebody may be writing it


def test_a_folder_that_was_replaced_keeps_its_names_for_a_while(tmp_path):
    """A reader that is listing a replaced folder still finds its file names, but the files are empty."""
    save(tmp_path, "old")
    folder = Dataset(tmp_path).table_folder("tags")
    pq.write_table(tags("older"), folder / "part-00001.parquet")
    listing = os.open(folder, os.O_RDONLY)
    with (folder / "part-00001.parquet").open("rb") as opened:
        save(tmp_path, "new")
        assert sorted(name.name for name in os.scandir(listing)) == ["part-00000.parquet", "part-00001.parquet"]
        assert pq.ParquetFile(opened).read()["name"].to_pylist() == ["older"]
    os.close(listing)
    assert [path.stat().st_size for path in tmp_path.glob(".staging-*/tags/*")] == [0, 0]
    save(tmp_path, "newest")
    assert len(list(tmp_path.glob(".staging-*"))) == 1


def test_a_run_is_added_beside_others_and_replaces_only_itself(tmp_path):
    """A part of a new run is added to the others; written again, it replaces only itself."""
    dataset = Dataset(tmp_path)
    for run, name in (("a", "1"), ("b", "2"), ("b", "3"), ("a", "4")):
        with replace_tables(dataset, {"tags": TAGS}, {"runs": {run: ""}}, keep_others=True) as writers:
            writers["tags"].write(tags(name))
    assert rows_by_glob(tmp_path) == ["4", "3"]
    assert [list(part.runs) for part in dataset.describe("tags")] == [["a"], ["b"]]


def test_several_tables_change_only_when_all_are_whole(tmp_path):
    """When the second table cannot be written, the first one stays as it was."""
    save(tmp_path, "old")
    dataset = Dataset(tmp_path)

    def break_off():
        with replace_tables(dataset, {"tags": TAGS, "nsfw": schema("nsfw")}, {}) as writers:
            writers["tags"].write(tags("new"))
            writers["nsfw"].write(tags("no such column"))

    with pytest.raises(ValueError, match="no column"):
        break_off()
    assert rows_by_glob(tmp_path) == ["old"]
    assert dataset.parts("nsfw") == []


def test_the_list_of_parts_says_what_the_footers_say(tmp_path):
    """`tables/parts.json` names every part with its rows, size and runs."""
    with replace_table(Dataset(tmp_path), "tags", TAGS, {"runs": {"r": "mark"}}) as part:
        part.write(tags("a", "b"))
    listed = json.loads((tmp_path / "tables" / "parts.json").read_text(encoding="utf-8"))
    (path,) = Dataset(tmp_path).parts("tags")
    assert listed["tables"]["tags"] == [
        {"part": path.name, "rows": 2, "size_bytes": path.stat().st_size, "runs": ["r"]}
    ]
    assert listed["tables"]["nsfw"] == []


def test_what_was_written_is_read_with_its_schema_and_lineage(tmp_path):
    """A file holds the rows, the descriptions of the columns, the schema version and the lineage."""
    save(tmp_path, "a", "b")
    dataset = Dataset(tmp_path)
    table = dataset.read("tags")
    assert table.equals(tags("a", "b"))
    assert table.schema.field("score").metadata == TAGS.field("score").metadata
    assert table.schema.metadata[b"lightmeter.schema_version"] == str(SCHEMA_VERSION).encode()
    assert dataset.lineage("tags") == {"run_id": "r"}
    footer = pq.ParquetFile(dataset.parts("tags")[0]).metadata
    assert footer.row_group(0).column(0).compression == "ZSTD"


def test_a_table_that_is_missing_is_empty_with_its_columns(tmp_path):
    """Before any export, and after an export without rows, a table has its columns and no rows."""
    dataset = Dataset(tmp_path)
    assert dataset.read("tags").equals(TAGS.empty_table())
    assert dataset.lineage("tags") is None
    with replace_table(dataset, "tags", TAGS):
        pass
    assert dataset.read("tags").equals(TAGS.empty_table())
    with pytest.raises(UsageError):
        dataset.read("no such table")


def test_small_writes_are_gathered_into_row_groups(tmp_path):
    """Small writes are gathered into large row groups, and at most one row group is buffered in memory."""
    few = tags(*["x"] * 1000)
    with replace_table(Dataset(tmp_path), "tags", TAGS) as part:
        for _ in range(ROW_GROUP_ROWS // 1000 + 2):
            part.write(few)
            assert part._buffered_rows < ROW_GROUP_ROWS
    (path,) = Dataset(tmp_path).parts("tags")
    assert pq.ParquetFile(path).metadata.num_row_groups == 2


def test_a_writer_fills_missing_columns_and_refuses_unknown_ones(tmp_path):
    """Missing columns of an older schema become null; a column that the schema lacks raises an error."""
    with replace_table(Dataset(tmp_path), "tags", TAGS) as part:
        part.write(pa.table({"name": ["a"], "score": pa.array([1], pa.int64())}))
        with pytest.raises(ValueError, match="odd"):
            part.write(pa.table({"odd": [1]}))
    (row,) = Dataset(tmp_path).read("tags").to_pylist()
    assert (row["name"], row["score"], row["item_id"]) == ("a", 1.0, None)
