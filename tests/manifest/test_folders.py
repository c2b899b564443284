"""Folders, globs and single files of media, and data sets of Parquet files, as manifests."""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import Location, remote_file_system
from lightmeter.manifest.item import stable_id
from lightmeter.manifest.readers import ManifestReader, digest_of
from lightmeter.manifest.row_parser import ReadOptions

NAMES = ["B.JPG", "a.jpg", "a/deep/er.mp4", "a/x.png", "ab.webm", "é ü.gif"]


@pytest.fixture
def photos(tmp_path):
    """Return a folder with media and with files that must be skipped."""
    folder = tmp_path / "photos"
    other = [".hidden.jpg", ".cache/x.jpg", "notes.txt", "a/.DS_Store", "out/journal.sqlite", "out/tables/a.png"]
    for name in [*NAMES, *other]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    (folder / "loop").symlink_to(folder)
    return folder


def names(source, **options):
    return [item.url for item in ManifestReader(source, **options)]


@pytest.mark.parametrize("written", ["{}", "{}/", "{}/../photos"])
def test_a_folder_of_media_is_a_row_for_each_file(photos, written):
    """Files come in the order of their relative paths, recursively; hidden files, links and runs are left out."""
    items = list(ManifestReader(written.format(photos)))
    assert [item.url for item in items] == NAMES
    assert [item.seq for item in items] == list(range(len(NAMES)))
    assert items[2].path == str((photos if "/.." not in written else photos / ".." / "photos") / "a/deep/er.mp4")
    assert [item.problem for item in items] == [None] * len(NAMES)
    assert items[1].item_id == stable_id("a.jpg")


def test_a_path_object_and_the_working_folder_are_folders_too(photos, monkeypatch):
    """`Path("photos")` and `.` are read as folders."""
    monkeypatch.chdir(photos)
    assert names(photos) == names(".") == names(Path()) == NAMES


GLOBS = {
    "*.jpg": ["a.jpg"],
    "**/*.[mp]*": ["a/deep/er.mp4", "a/x.png"],
    "a/**": ["deep/er.mp4", "x.png"],
    "*": ["B.JPG", "a.jpg", "ab.webm", "é ü.gif"],
    "**/x.???": ["a/x.png"],
    "*/*.png": ["a/x.png"],
    "**": NAMES,
}


@pytest.mark.parametrize("pattern", GLOBS)
def test_a_glob_is_expanded_by_us(photos, monkeypatch, pattern):
    """A pattern in quotes is a row for each media file that matches, named relative to where the pattern begins."""
    assert names(f"{photos}/{pattern}") == GLOBS[pattern]
    monkeypatch.chdir(photos.parent)
    assert names(f"photos/{pattern}") == GLOBS[pattern]
    first = next(iter(ManifestReader(f"photos/{pattern}")))
    assert Path(first.path).exists()


def test_an_escaped_character_is_no_pattern(tmp_path):
    """An escaped character such as `[[]` is literal, also in the folder part of a pattern."""
    (tmp_path / "my [x]").mkdir()
    (tmp_path / "my [x]" / "a.jpg").touch()
    assert names(f"{tmp_path}/my [[]x]/*.jpg") == ["a.jpg"]


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path):
    """A file whose exact name contains pattern characters is not expanded."""
    for name in ("a[1].jpg", "a1.jpg"):
        (tmp_path / name).touch()
    assert names(tmp_path / "a[1].jpg") == ["a[1].jpg"]


def test_one_media_file_is_a_manifest_of_one_row(photos):
    """A media file is a manifest of one row."""
    (item,) = ManifestReader(str(photos / "a/deep/er.mp4"))
    assert (item.url, item.path) == ("er.mp4", str(photos / "a/deep/er.mp4"))


def test_odd_names_are_rows_with_their_own_path(tmp_path):
    """White space at the ends of a name is a part of it; a name that is not UTF-8 is a bad row."""
    (tmp_path / " a.jpg").touch()
    (tmp_path / "b\n.jpg").touch()
    (tmp_path / os.fsdecode(b"c\xff.jpg")).touch()
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere")
    spaced, broken, odd, missing = ManifestReader(tmp_path)
    assert (Path(spaced.path).exists(), Path(broken.path).exists()) == (True, True)
    assert odd.problem == "its name is not UTF-8"
    assert (missing.url, missing.problem) == ("gone.jpg", "the file cannot be read: No such file or directory")


NO_MANIFESTS = {
    "both": (["a.jpg", "b/c.parquet"], "1 pictures and videos and 1 Parquet files"),
    "neither": (["notes.txt", "m.csv"], r"no picture, no video and no Parquet file \(2 other files, such as m.csv\)"),
    "nothing": ([], "no picture, no video and no Parquet file$"),
    "delta": (["_delta_log/0.json", "part.parquet"], "Delta table"),
}


@pytest.mark.parametrize("name", NO_MANIFESTS)
def test_a_folder_that_is_no_manifest_says_what_it_holds(tmp_path, name):
    """A folder with media and Parquet, with neither, or with a Delta table is an error that says what was found."""
    files, message = NO_MANIFESTS[name]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(ManifestError, match=message) as raised:
        list(ManifestReader(tmp_path))
    assert str(raised.value).startswith(f"{tmp_path}: ")
    assert raised.value.hint


@pytest.mark.parametrize("pattern", ["*.png", "nowhere/*.jpg", "*.txt"])
def test_a_glob_without_a_file_to_read_is_an_error(tmp_path, pattern):
    """No match is an error, and so is a match that is neither media nor Parquet."""
    (tmp_path / "a.txt").touch()
    with pytest.raises(ManifestError, match=r"no file matches|no picture"):
        list(ManifestReader(tmp_path / pattern))


def test_a_missing_media_file_is_an_error(tmp_path):
    """A missing media file is an error."""
    with pytest.raises(ManifestError, match="no such file"):
        list(ManifestReader(tmp_path / "a.jpg"))


def test_the_digest_of_media_is_that_of_names_sizes_and_times(photos):
    """The digest depends on names, sizes and times of the media files only."""
    reader = ManifestReader(photos)
    list(reader)
    before = reader.sha256
    entries = [(name, (photos / name).stat()) for name in NAMES]
    listing = "".join(f"{name}\0{stat.st_size} {stat.st_mtime_ns}\n" for name, stat in entries)
    assert before == sha256(listing.encode()).hexdigest() == digest_of(str(photos))
    (photos / "more.txt").touch()
    assert digest_of(photos) == before
    os.utime(photos / "a.jpg", ns=(0, 0))
    touched = digest_of(photos)
    (photos / "a.jpg").rename(photos / "z.jpg")
    assert len({before, touched, digest_of(photos)}) == 3


@pytest.fixture
def parts(tmp_path):
    """Return a data set in hive partitions, whose files differ in columns and types."""
    folder = tmp_path / "set"
    tables = {
        "year=2023/b.parquet": {"url": ["https://e.org/3.jpg"], "n": pa.array([3], pa.int32())},
        "year=2023/a.parquet": {
            "url": ["https://e.org/1.jpg", "https://e.org/2.jpg"],
            "n": pa.array([1, 2], pa.int32()),
        },
        "year=2024/shop=x%20y/c.parquet": {"url": ["https://e.org/4.jpg"], "n": [2**40], "note": ["late"]},
        "_temporary/d.parquet": {"url": ["https://e.org/5.jpg"]},
    }
    for name, columns in tables.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / name)
    (folder / "_SUCCESS").touch()
    return folder


def test_a_folder_of_parquet_is_one_manifest_in_path_order(parts):
    """Files are read in the order of their paths; keys of folders are columns, and what a file lacks is null."""
    reader = ManifestReader(parts)
    items = list(reader)
    assert [item.url for item in items] == [f"https://e.org/{n}.jpg" for n in range(1, 5)]
    assert items[0].extra == {"n": 1, "note": None, "year": 2023, "shop": None}
    assert items[3].extra == {"n": 2**40, "note": "late", "year": 2024, "shop": "x y"}
    assert reader.extra_types == {"n": "int64", "note": "string", "year": "int64", "shop": "string"}
    assert reader.sha256 == digest_of(parts)


def test_its_digest_is_that_of_names_and_bytes(parts):
    """The digest depends on contents and folders, not on modification times."""
    before = digest_of(parts)
    os.utime(parts / "year=2023/a.parquet", ns=(0, 0))
    assert digest_of(parts) == before
    (parts / "year=2022").mkdir()
    (parts / "year=2023/a.parquet").rename(parts / "year=2022/a.parquet")
    assert digest_of(parts) != before


def test_a_glob_and_a_uri_of_parquet_are_the_same(parts):
    """A glob and a folder's URI give the same rows as the folder."""
    urls = [f"https://e.org/{n}.jpg" for n in range(1, 5)]
    assert names(f"{parts}/**/*.parquet") == names(parts.as_uri()) == urls
    assert names(f"{parts}/year=2023/*.parquet") == urls[:3]
    assert digest_of(parts.as_uri()) == digest_of(parts)


def test_many_files_come_in_order_and_batch_by_batch(tmp_path):
    """Rows come in the order of the paths, for any number of files and row groups."""
    for part in range(40):
        urls = [f"https://e.org/{part:02}-{n:02}.jpg" for n in range(50)]
        pq.write_table(pa.table({"url": urls}), tmp_path / f"{part:02}.parquet", row_group_size=7)
    expected = chain.from_iterable([f"https://e.org/{part:02}-{n:02}.jpg" for n in range(50)] for part in range(40))
    assert names(tmp_path) == list(expected)


def test_relative_paths_in_a_data_set_are_relative_to_the_folder_named(tmp_path):
    """Paths in rows are relative to the named folder."""
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"path": ["media/a.jpg"]}), tmp_path / "day=1" / "p.parquet")
    (item,) = ManifestReader(tmp_path)
    assert item.path == str(tmp_path / "media/a.jpg")


BAD_SETS = {
    "empty": ({"a.parquet": b""}, "a.parquet cannot be read as Parquet"),
    "no url": ({"a.parquet": {"link": ["x"]}}, "no column is named"),
}


@pytest.mark.parametrize("name", BAD_SETS)
def test_a_data_set_that_cannot_be_read_names_the_file(tmp_path, name):
    """A data set without a readable file, or without addresses, is an error that says so."""
    files, message = BAD_SETS[name]
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        if isinstance(content, bytes):
            (tmp_path / file).write_bytes(content)
        else:
            pq.write_table(pa.table(content), tmp_path / file)
    with pytest.raises(ManifestError, match=message):
        list(ManifestReader(tmp_path))


def test_a_folder_of_media_has_no_columns_to_name(photos):
    """A named column of a folder of media is an error."""
    with pytest.raises(ManifestError, match="no column is named `image`; it has no columns"):
        list(ManifestReader(photos, options=ReadOptions(url_column="image")))


def test_media_elsewhere_are_refused_with_a_way_out(photos):
    """The URI of a folder with media is an error that says what to do: media must be on this machine."""
    with pytest.raises(ManifestError, match="from this machine alone") as raised:
        list(ManifestReader(photos.as_uri()))
    assert "https" in raised.value.hint


def test_schemes_name_file_systems(monkeypatch):
    """gs:// and az:// are resolved to Arrow's file systems without a request."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    for uri, kind in (("gs://anonymous@bucket/m.csv", "gcs"), ("az://bucket/m.csv", "abfs")):
        filesystem, path = remote_file_system(Location(uri))
        assert (filesystem.type_name, path) == (kind, "bucket/m.csv")


@pytest.mark.parametrize(("uri", "message"), [("az://c/m.csv", "AZURE_STORAGE_ACCOUNT_NAME"), ("hf://d/m.csv", "pip")])
def test_what_a_scheme_needs_is_reported_in_one_sentence(monkeypatch, uri, message):
    """Without an account, or without the package, the error says what to set or to install."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ManifestError, match=message):
        list(ManifestReader(uri))


def test_a_key_in_a_uri_is_not_reported(tmp_path):
    """Messages and lineage do not contain credentials of a URI."""
    location = Location("s3://KEY:SECRET@bucket/m.csv?region=eu-central-1&endpoint_override=x")
    assert (location.name, location.suffixes) == ("s3://bucket/m.csv", [".csv"])
    assert ManifestReader(location.text).name == "s3://bucket/m.csv"


def test_keys_above_the_folder_named_are_no_columns(parts):
    """Only keys of folders below the named one are columns."""
    (item, *_) = ManifestReader(parts / "year=2023")
    assert item.extra == {"n": 1}
