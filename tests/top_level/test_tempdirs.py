"""Folders for work in progress: they go with whoever has them, however he goes, and never while he lives."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile

import pytest

from lightmeter.tempdirs import LockedTempDir


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder for temporary files, of this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_goes_with_its_block_or_its_owner(place):
    """At the end of the block, or when nobody has it any more, it is gone with all that is in it."""
    with LockedTempDir() as scratch:
        (scratch.path / "file").touch()
        assert scratch.path.parent == place
    assert list(place.iterdir()) == []
    kept = LockedTempDir()
    assert kept.path.exists()
    del kept
    gc.collect()
    assert list(place.iterdir()) == []


HOLDER = """
from lightmeter.tempdirs import Scratch
scratch = Scratch()
(scratch.path / "file").touch()
print(scratch.path.name, flush=True)
input()
"""


def test_what_the_dead_left_is_removed_and_what_the_living_have_is_not(place):
    """The next one to need a folder removes those of killed processes; others' are left alone."""
    command = [sys.executable, "-c", HOLDER]
    holders = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    killed, living = (one.stdout.readline().strip() for one in holders)
    (place / "lightmeter-scratch-file").touch()  # nobody's folder
    holders[0].kill()
    holders[0].communicate()
    assert (place / killed / "file").exists()
    with LockedTempDir() as scratch:
        there = {path.name for path in place.iterdir()}
        assert there == {living, scratch.path.name, "lightmeter-scratch-file"}
        assert (place / living / "file").exists()
    holders[1].communicate("\n")
    assert not (place / living).exists()


STORM = """
import sys
from lightmeter.tempdirs import Scratch
for _ in range(200):
    with Scratch() as scratch:
        (scratch.path / "file").write_text("mine")
        Scratch().remove()
        assert (scratch.path / "file").read_text() == "mine"
"""


def test_many_at_once_never_lose_a_folder(place):
    """A folder that is just made is not taken for a dead one's by those who look at that moment."""
    command = [sys.executable, "-c", STORM]
    storm = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [(one.communicate()[1], one.returncode) for one in storm] == [("", 0)] * 4
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_a_plan_that_was_killed_leaves_nothing_to_the_next(place, environment):
    """After `kill -9` while planning, the next plan removes the rows that the first had read; a living plan goes on."""
    command = [sys.executable, "-m", "lightmeter", "plan", "-", "--no-precheck"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own = {**environment, "TMPDIR": str(place)}
    plans = [subprocess.Popen(command, env=own, **pipes) for _ in range(2)]
    for plan in plans:
        plan.stdin.write("url\n" + "".join(f"http://pictures.example/{n}.jpg\n" for n in range(60_000)))
        plan.stdin.flush()
        assert "planning" in plan.stderr.readline()
    assert len(list(place.glob("*/journal.sqlite"))) == 2
    plans[0].kill()
    plans[0].communicate()
    third = subprocess.run(command, env=own, input="url\nhttp://x.example/a.jpg\n", text=True, check=False, timeout=60)
    assert third.returncode == 0
    assert len(list(place.glob("*/journal.sqlite"))) == 1
    assert "60000 rows" in plans[1].communicate()[0]
    assert plans[1].returncode == 0
    assert [path for path in place.iterdir() if path.is_dir()] == []
