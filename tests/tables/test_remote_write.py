"""Tables in shared places: one object a table, old or new, on a real S3 server and through fsspec."""

from __future__ import annotations

import threading
from contextlib import suppress

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from lightmeter.errors import UsageError
from lightmeter.tables.remote.write import publish


def count(there: fs.FileSystem, folder: str) -> int:
    """Return the number of rows that a reader of a table's objects finds."""
    found = [one for one in there.get_file_info(fs.FileSelector(folder)) if one.base_name.endswith(".parquet")]
    return sum(pq.ParquetFile(there.open_input_file(one.path)).metadata.num_rows for one in found)


def test_a_table_is_one_object_whose_readers_see_the_old_or_the_new_one(tmp_path, s3, add):
    """While a table is published repeatedly, readers find the old or the new rows, and no other object remains."""
    there, uri = s3.there, s3.uri("photos")
    dataset = add(tmp_path, "first", 10)
    publish(dataset, uri)
    row_counts, done = [], threading.Event()

    def read():
        while not done.is_set():
            with suppress(pa.ArrowInvalid, OSError):  # replaced between its size and its footer: ask again
                row_counts.append(count(there, "lake/photos/tables/tags"))

    thread = threading.Thread(target=read)
    thread.start()
    for cycle in range(5):
        publish(add(tmp_path, f"run {cycle}", 10), uri)
    done.set()
    thread.join()
    assert row_counts
    assert row_counts == sorted(row_counts)
    assert set(row_counts) <= {10, 20, 30, 40, 50, 60}
    left = there.get_file_info(fs.FileSelector("lake/photos/tables", recursive=True))
    assert [one.path for one in left if one.type == fs.FileType.File] == ["lake/photos/tables/tags/part-00000.parquet"]
    assert count(there, "lake/photos/tables/tags") == 60


def test_a_place_with_other_parts_is_refused(tmp_path, s3, add):
    """A place with parts of another program is refused, because rows would be counted twice."""
    there, uri = s3.there, s3.uri("photos")
    there.create_dir("lake/photos/tables/tags")
    with there.open_output_stream("lake/photos/tables/tags/other.parquet") as file:
        file.write(b"x")
    with pytest.raises(UsageError, match=r"other\.parquet"):
        publish(add(tmp_path, "a", 1), uri)
    there.delete_file("lake/photos/tables/tags/other.parquet")


def test_any_file_system_of_fsspec_will_do(tmp_path, add):
    """Tables can be published to any file system of fsspec."""
    memory = fsspec.filesystem("memory")
    written = publish(add(tmp_path, "a", 3), "/lake/photos", memory)
    assert list(written) == ["tags"]
    assert list(memory.find("/lake/photos")) == ["/lake/photos/tables/tags/part-00000.parquet"]
    assert pq.read_table(written["tags"], filesystem=memory).num_rows == 3


def test_a_transfer_that_breaks_off_leaves_the_old_table(tmp_path, add):
    """If an upload fails, the published table is unchanged and no partial object is left."""
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


def test_a_place_that_is_none_is_wrong_usage(tmp_path, add):
    """An unknown scheme or an empty bucket name raises a usage error."""
    with pytest.raises(UsageError, match="cannot be written"):
        publish(add(tmp_path, "a", 1), "gopher://nowhere")


def test_a_key_in_an_address_is_not_shown(tmp_path, s3, add):
    """Messages do not show the key in a URI."""
    place = s3.uri("photos").replace("k:k@lake", "k:secret@nowhere")
    with pytest.raises(UsageError, match="s3://nowhere/photos cannot be written") as raised:
        publish(add(tmp_path, "a", 1), place)
    assert "secret" not in str(raised.value)
