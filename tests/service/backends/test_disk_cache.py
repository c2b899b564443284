"""The cache file: created once, verified on each read, optional."""

from __future__ import annotations

import pytest

from lightmeter.service.backends.imagenet.tagger import read_or_create_cache


def test_made_once(tmp_path):
    """A cached content is not created again."""
    contents = iter([b"first", b"second"])
    path = tmp_path / "deep" / "thing"
    assert read_or_create_cache(path, lambda: next(contents)) == b"first"
    assert read_or_create_cache(path, lambda: next(contents)) == b"first"


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:-1], lambda whole: whole[:-1] + b"\0"])
def test_damage_is_mended(tmp_path, damage):
    """An empty, truncated or changed file is created again."""
    path = tmp_path / "thing"
    read_or_create_cache(path, lambda: b"whole")
    path.write_bytes(damage(path.read_bytes()))
    assert read_or_create_cache(path, lambda: b"whole") == b"whole"
    assert read_or_create_cache(path, lambda: b"not asked") == b"whole"


def test_a_place_that_cannot_be_written_is_no_error(tmp_path):
    """If the folder is not writable, the content is created each time."""
    (tmp_path / "file").write_bytes(b"")
    assert read_or_create_cache(tmp_path / "file" / "thing", lambda: b"made") == b"made"
