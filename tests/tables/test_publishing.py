"""Tables in shared places: one object a table, old or new, on a real S3 server, through fsspec, and as Delta."""

from __future__ import annotations

import threading
from contextlib import suppress

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from lightmeter.errors import UsageError
from lightmeter.tables import TABLES, Dataset, schema
from lightmeter.tables.publishing import publish

TAGS = schema("tags")


def add(out, run, rows):
    columns = {field.name: pa.nulls(rows, field.type) for field in TAGS}
    dataset = Dataset(out)
    with dataset.locked(), dataset.replacing({"tags": TAGS}, {"runs": {run: ""}}, beside=True) as writers:
        writers["tags"].write(pa.table({**columns, "name": pa.array([run] * rows, pa.string())}, schema=TAGS))
    return dataset


@pytest.fixture(scope="module")
def s3():
    """A file system on an S3 server of this process, and the URI of a bucket in it."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    there = fs.S3FileSystem(
        access_key="k", secret_key="k", endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True
    )
    there.create_dir("lake")
    yield there, f"s3://k:k@lake/photos?scheme=http&endpoint_override={host}%3A{port}&region=us-east-1"
    server.stop()


def count(there: fs.FileSystem, folder: str) -> int:
    """What a reader finds who lists a table's objects and opens them."""
    found = [one for one in there.get_file_info(fs.FileSelector(folder)) if one.base_name.endswith(".parquet")]
    return sum(pq.ParquetFile(there.open_input_file(one.path)).metadata.num_rows for one in found)


def test_a_table_is_one_object_whose_readers_see_the_old_or_the_new_one(tmp_path, s3):
    """Published again and again, a table never is less, never is more, and leaves nothing else behind."""
    there, uri = s3
    dataset = add(tmp_path, "first", 10)
    publish(dataset, uri)
    seen, done = [], threading.Event()

    def read():
        while not done.is_set():
            with suppress(pa.ArrowInvalid, OSError):  # replaced between its size and its footer: ask again
                seen.append(count(there, "lake/photos/tables/tags"))

    thread = threading.Thread(target=read)
    thread.start()
    for cycle in range(5):
        publish(add(tmp_path, f"run {cycle}", 10), uri)
    done.set()
    thread.join()
    assert seen
    assert seen == sorted(seen)
    assert set(seen) <= {10, 20, 30, 40, 50, 60}
    left = there.get_file_info(fs.FileSelector("lake/photos/tables", recursive=True))
    assert [one.path for one in left if one.type == fs.FileType.File] == ["lake/photos/tables/tags/part-00000.parquet"]
    assert count(there, "lake/photos/tables/tags") == 60


def test_a_place_with_other_parts_is_refused(tmp_path, s3):
    """Beside parts that others wrote, rows would be counted twice."""
    there, uri = s3
    there.create_dir("lake/photos/tables/tags")
    with there.open_output_stream("lake/photos/tables/tags/other.parquet") as file:
        file.write(b"x")
    with pytest.raises(UsageError, match=r"other\.parquet"):
        publish(add(tmp_path, "a", 1), uri)
    there.delete_file("lake/photos/tables/tags/other.parquet")


def test_any_file_system_of_fsspec_will_do(tmp_path):
    """Tables go to whatever fsspec knows, by the same steps."""
    memory = fsspec.filesystem("memory")
    written = publish(add(tmp_path, "a", 3), "/lake/photos", memory)
    assert list(written) == ["tags"]
    assert list(memory.find("/lake/photos")) == ["/lake/photos/tables/tags/part-00000.parquet"]
    assert pq.read_table(written["tags"], filesystem=memory).num_rows == 3


def test_a_transfer_that_breaks_off_leaves_the_old_table(tmp_path):
    """When the place fails in the middle, the table there is as it was, and no half object is left."""
    place = tmp_path / "lake"
    place.mkdir()
    publish(add(tmp_path / "out", "a", 3), str(place), fs.LocalFileSystem())

    class Full(fs.FSSpecHandler):
        def move(self, src, dest):
            raise OSError("no space")

    broken = fs.PyFileSystem(Full(fsspec.filesystem("file")))
    with pytest.raises(UsageError, match="no space"):
        publish(add(tmp_path / "out", "b", 3), str(place), broken)
    assert count(fs.LocalFileSystem(), str(place / "tables/tags")) == 3
    assert len(list((place / "tables" / "tags").iterdir())) == 1


def test_a_place_that_is_none_is_wrong_usage(tmp_path):
    """Neither an unknown scheme nor an empty bucket name is a traceback."""
    with pytest.raises(UsageError, match="cannot be written"):
        publish(add(tmp_path, "a", 1), "gopher://nowhere")


def test_delta_tables_have_the_same_rows_and_a_new_version_each_time(tmp_path):
    """Written twice, a Delta table has two versions, the last with all rows; older ones can still be read."""
    deltalake = pytest.importorskip("deltalake")
    from lightmeter.tables.delta import write_delta  # noqa: PLC0415 (beside what it needs)

    dataset = Dataset(tmp_path)
    with dataset.locked(), dataset.replacing({table: schema(table) for table in TABLES}, {"runs": {"a": ""}}):
        pass
    add(tmp_path, "b", 4)
    assert write_delta(dataset, str(tmp_path / "delta")) == dict.fromkeys(reversed(TABLES), 0)
    add(tmp_path, "c", 5)
    assert write_delta(dataset, str(tmp_path / "delta"))["tags"] == 1
    table = deltalake.DeltaTable(tmp_path / "delta" / "tags")
    assert table.to_pyarrow_table().num_rows == 9
    assert deltalake.DeltaTable(tmp_path / "delta" / "tags", version=0).to_pyarrow_table().num_rows == 4
    colors = pa.schema(deltalake.DeltaTable(tmp_path / "delta" / "colors").schema().to_arrow())
    assert colors.names == schema("colors").names
