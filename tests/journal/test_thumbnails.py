"""The file of thumbnails beside a journal: bounded, and never an error."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from lightmeter.journal.thumbnails import (
    THUMBNAILS_NAME,
    ThumbnailStore,
    add_thumbnails,
    copy_thumbnails,
    read_thumbnails,
)
from lightmeter.sqlite import open_read_only

MAX_BYTES = 10**6


def picture(number: int, size_bytes: int = 5000) -> tuple[str, bytes]:
    return f"{number:064x}", bytes([number % 256]) * size_bytes


def numbers(folder) -> list[int]:
    with closing(open_read_only(folder / THUMBNAILS_NAME)) as db:
        return [int(key, 16) for (key,) in db.execute("SELECT content_sha256 FROM thumbnails ORDER BY id")]


def store(folder, *stored: int, max_bytes: int = MAX_BYTES) -> None:
    with ThumbnailStore(folder / THUMBNAILS_NAME, max_bytes) as thumbnails:
        thumbnails.add(picture(number) for number in stored)


def test_thumbnails_are_found_by_content(tmp_path):
    """A thumbnail is found by the hash of the content; others are left out."""
    store(tmp_path, 1, 2, 3)
    assert read_thumbnails(tmp_path, [picture(2)[0], picture(9)[0]]) == dict([picture(2)])


@pytest.mark.parametrize("at_once", [1, 7, 500])
def test_limit_is_held_and_the_oldest_are_removed(tmp_path, at_once):
    """The file never grows beyond the limit, and keeps the newest thumbnails that fit."""
    path = tmp_path / THUMBNAILS_NAME
    with ThumbnailStore(path, MAX_BYTES) as thumbnails:
        for first in range(0, 500, at_once):
            thumbnails.add(picture(number) for number in range(first, min(500, first + at_once)))
            assert path.stat().st_size <= MAX_BYTES
    assert path.stat().st_size <= MAX_BYTES
    rows = numbers(tmp_path)
    assert rows == list(range(500 - len(rows), 500))
    assert len(rows) > 100


def test_a_lower_limit_shrinks_the_file(tmp_path):
    """The next thumbnail makes the file as small as a new limit says."""
    store(tmp_path, *range(150))
    store(tmp_path, 200, max_bytes=100_000)
    assert (tmp_path / THUMBNAILS_NAME).stat().st_size <= 100_000
    assert numbers(tmp_path)[-1] == 200
    store(tmp_path, 201, max_bytes=1)
    assert numbers(tmp_path) == []


def test_a_thumbnail_seen_again_is_the_newest(tmp_path):
    """The age of a thumbnail is the time since its content was last looked at."""
    store(tmp_path, 1, 2, 3)
    store(tmp_path, 1)
    assert numbers(tmp_path) == [2, 3, 1]


def test_no_limit_of_zero_makes_a_file(tmp_path):
    """With a limit of 0 nothing is stored."""
    store(tmp_path, 1, max_bytes=0)
    add_thumbnails(tmp_path / "none.sqlite", tmp_path / THUMBNAILS_NAME, MAX_BYTES)
    assert list(tmp_path.iterdir()) == []
    assert read_thumbnails(tmp_path, [picture(1)[0]]) == {}


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\x00" + bytes(5000)])
def test_a_damaged_file_is_replaced(tmp_path, content):
    """A file that is no database has no thumbnails, and is made anew by the next one."""
    path = tmp_path / THUMBNAILS_NAME
    path.write_bytes(content)
    assert read_thumbnails(tmp_path, [picture(1)[0]]) == {}
    add_thumbnails(path, tmp_path / "other.sqlite", MAX_BYTES)
    path.write_bytes(content)
    store(tmp_path, 1)
    assert numbers(tmp_path) == [1]


def test_damaged_pages_lose_thumbnails_only(tmp_path):
    """Pages overwritten with zeros raise no error for readers and writers, and the file works again later."""
    path = tmp_path / THUMBNAILS_NAME
    store(tmp_path, *range(50))
    broken = bytearray(path.read_bytes())
    broken[4096:] = bytes(len(broken) - 4096)
    path.write_bytes(broken)
    assert read_thumbnails(tmp_path, [picture(1)[0]]) == {}
    for _ in range(3):
        store(tmp_path, 1)
    assert numbers(tmp_path) == [1]


def test_a_folder_in_place_of_the_file_is_no_error(tmp_path):
    """Where no file can be made, nothing is stored."""
    (tmp_path / THUMBNAILS_NAME).mkdir()
    store(tmp_path, 1)
    copy_thumbnails(tmp_path / THUMBNAILS_NAME, tmp_path / "copy.sqlite")
    assert read_thumbnails(tmp_path, [picture(1)[0]]) == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_read(tmp_path):
    """The thumbnails of a folder on a read-only medium are found."""
    store(tmp_path, 1)
    (tmp_path / THUMBNAILS_NAME).chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert read_thumbnails(tmp_path, [picture(1)[0]]) == dict([picture(1)])
    finally:
        tmp_path.chmod(0o700)


def test_readers_see_a_file_that_is_being_written(tmp_path):
    """While a writer has the file open, readers find what it has stored."""
    with ThumbnailStore(tmp_path / THUMBNAILS_NAME, MAX_BYTES) as thumbnails:
        for number in range(20):
            thumbnails.add([picture(number)])
            assert read_thumbnails(tmp_path, [picture(number)[0]]) == dict([picture(number)])


def test_copies_and_merges(tmp_path):
    """A copy replaces what was there; added thumbnails come after those that were there."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, stored in ((old, (1, 2)), (new, (2, 3))):
        folder.mkdir()
        store(folder, *stored)
    add_thumbnails(new / THUMBNAILS_NAME, old / THUMBNAILS_NAME, MAX_BYTES)
    assert numbers(old) == [1, 2, 3]
    copy_thumbnails(new / THUMBNAILS_NAME, old / THUMBNAILS_NAME)
    assert numbers(old) == [2, 3]
    copy_thumbnails(tmp_path / "none.sqlite", old / THUMBNAILS_NAME)
    assert not (old / THUMBNAILS_NAME).exists()
