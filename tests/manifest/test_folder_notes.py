"""What a folder holds that cannot be read, or is of another type, is a row with a problem or a counted note."""

from __future__ import annotations

import os
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.manifest.readers import ManifestReader, digest_of
from tests.manifest.test_tars import make_tar


def read(source):
    """Return {url: problem} of the items, and the notes; the digest can be computed too."""
    reader = ManifestReader(source)
    problems = {item.url: item.problem for item in reader}
    assert reader.sha256 == digest_of(source)
    return problems, reader.notes


def test_what_is_no_file_with_content_is_a_bad_row(tmp_path):
    """Links that lead nowhere or to themselves, pipes, sockets and empty files are rows with a problem."""
    (tmp_path / "ok.jpg").write_bytes(b"x")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    (tmp_path / "one.jpg").symlink_to(tmp_path / "two.jpg")
    (tmp_path / "two.jpg").symlink_to(tmp_path / "one.jpg")
    os.mkfifo(tmp_path / "pipe.mp4")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.png"))
        problems, notes = read(tmp_path)
    assert problems == {
        "empty.jpg": "the file is empty",
        "gone.jpg": "the file cannot be read: No such file or directory",
        "loop.jpg": "the file cannot be read: Too many levels of symbolic links",
        "ok.jpg": None,
        "one.jpg": "the file cannot be read: Too many levels of symbolic links",
        "pipe.mp4": "it is no regular file",
        "socket.png": "it is no regular file",
        "two.jpg": "the file cannot be read: Too many levels of symbolic links",
    }
    assert notes == []


def test_what_is_left_out_is_counted(tmp_path):
    """Files of other types, links to folders, loops without a suffix and output folders are notes, not silence."""
    for name in ("a.jpg", "b/c.png", "notes.txt", "b/raw.cr2", "x.tar", os.fsdecode(b"\xff.doc"), "run/journal.sqlite"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "b" / "up").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "b")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    problems, notes = read(tmp_path)
    assert problems == {"a.jpg": None, "b/c.png": None}
    assert notes == [
        "links to folders, which are not followed: 2, such as again/",
        "files of other types, which are not read: 4, such as b/raw.cr2",
        "output folders of runs, which are not read: 1, such as run/",
        "tars beside other files, which are not read: 1, such as x.tar",
    ]
    assert read(f"{tmp_path}/**/*.jpg")[0] == {"a.jpg": None}
    assert read(f"{tmp_path}/*.jpg") == ({"a.jpg": None}, [])


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_read_is_a_note(tmp_path):
    """A subfolder without permission is a note, and the other files are read."""
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "closed").mkdir(mode=0)
    assert read(tmp_path) == ({"a.jpg": None}, ["folders that cannot be read: 1, such as closed/"])
    (tmp_path / "closed").chmod(0o700)


def test_an_unreadable_part_of_a_data_set_is_a_bad_row(tmp_path):
    """An empty, a damaged and an oddly named Parquet file are rows with a problem beside the rows of the others."""
    pq.write_table(pa.table({"id": ["1"], "url": ["https://e.org/1.jpg"]}), tmp_path / "b.parquet")
    content = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "a.parquet").touch()
    (tmp_path / "c.parquet").write_bytes(content[:-8])
    (tmp_path / "d.parquet").write_bytes(content[:4] + b"\xff" * 40 + content[44:])
    (tmp_path / os.fsdecode(b"e\xff.parquet")).write_bytes(content)
    (tmp_path / "manifest.csv").write_text("url\n")
    problems, notes = read(tmp_path)
    assert list(problems) == ["a.parquet", "https://e.org/1.jpg", "c.parquet", "d.parquet", "e?.parquet"]
    assert problems.pop("https://e.org/1.jpg") is None
    assert all("cannot be read" in problem for problem in problems.values())
    assert notes == ["files of other types, which are not read: 1, such as manifest.csv"]


def test_a_folder_of_tars_says_what_it_leaves_out(tmp_path):
    """Beside tars, files of other types are notes, and an empty tar is a bad row."""
    make_tar(tmp_path / "a.tar", {"1.jpg": b"x"})
    (tmp_path / "b.tar").touch()
    (tmp_path / "index.json").write_text("{}")
    problems, notes = read(tmp_path)
    assert (problems["a.tar/1.jpg"], "b.tar" in problems, len(problems)) == (None, True, 2)
    assert notes == ["files of other types, which are not read: 1, such as index.json"]
