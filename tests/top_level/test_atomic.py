"""Files are written completely or not at all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lightmeter.atomic import atomic_replace, write_bytes, write_text


def test_a_file_is_replaced_as_a_whole(tmp_path):
    """A reader sees the old content until the new one is complete."""
    target = tmp_path / "deep" / "file.txt"
    write_text(target, "old")
    with atomic_replace(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_write_leaves_only_the_old_file(tmp_path):
    """If the block raises, the target does not change and the temporary file is removed."""
    target = tmp_path / "file.txt"
    write_bytes(target, b"old")

    def broken_write() -> None:
        with atomic_replace(target) as temporary:
            temporary.write_bytes(b"half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        broken_write()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_no_glob_on_the_suffix_finds_the_temporary_file(tmp_path):
    """The temporary name does not end in the target's suffix."""
    with atomic_replace(tmp_path / "part-0.parquet") as temporary:
        temporary.write_bytes(b"x")
        assert list(tmp_path.glob("*.parquet")) == []


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    """Kill -9 during a write does not change the target."""
    target = tmp_path / "file.txt"
    write_text(target, "old")
    code = (
        "import os, sys; from pathlib import Path; from lightmeter.atomic import atomic_replace\n"
        "with atomic_replace(Path(sys.argv[1])) as t:\n    t.write_text('half'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(target)], check=False).returncode == -9
    assert target.read_text() == "old"
