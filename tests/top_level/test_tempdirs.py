"""Temporary folders are removed with their process, however it ends, and never before."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile

import pytest

from lightmeter.tempdirs import LockedTempDir


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return a folder that this test uses as the system's temporary folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_is_removed_with_its_block_or_object(temporary):
    """The folder is removed at the end of the block, or when its object is collected."""
    with LockedTempDir() as scratch:
        (scratch.path / "file").touch()
        assert scratch.path.parent == temporary
    assert list(temporary.iterdir()) == []
    dropped = LockedTempDir()
    assert dropped.path.exists()
    del dropped
    gc.collect()
    assert list(temporary.iterdir()) == []


HOLDER = """
from lightmeter.tempdirs import LockedTempDir
scratch = LockedTempDir()
(scratch.path / "file").touch()
print(scratch.path.name, flush=True)
input()
"""


def test_only_folders_of_ended_processes_are_removed(temporary):
    """The next process removes folders of killed processes and no others."""
    command = [sys.executable, "-c", HOLDER]
    holders = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    killed, running = (one.stdout.readline().strip() for one in holders)
    (temporary / "lightmeter-scratch-file").touch()  # not a folder of a process
    holders[0].kill()
    holders[0].communicate()
    assert (temporary / killed / "file").exists()
    with LockedTempDir() as scratch:
        there = {path.name for path in temporary.iterdir()}
        assert there == {running, scratch.path.name, "lightmeter-scratch-file"}
        assert (temporary / running / "file").exists()
    holders[1].communicate("\n")
    assert not (temporary / running).exists()


URLS = "url\nhttp://x.example/a.jpg\n"

STRESS = """
import sys
from lightmeter.tempdirs import LockedTempDir
for _ in range(200):
    with LockedTempDir() as scratch:
        (scratch.path / "file").write_text("mine")
        LockedTempDir().remove()
        assert (scratch.path / "file").read_text() == "mine"
"""


def test_processes_never_remove_a_new_folder_of_another(temporary):
    """A folder that was just created is not taken for one of an ended process."""
    command = [sys.executable, "-c", STRESS]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [(one.communicate()[1], one.returncode) for one in processes] == [("", 0)] * 4
    assert list(temporary.iterdir()) == []


@pytest.mark.sweep
@pytest.mark.slow
def test_the_folder_of_a_killed_plan_is_removed_by_the_next(temporary, environment):
    """After kill -9 during planning the next plan removes its rows; a running plan continues."""
    command = [sys.executable, "-m", "lightmeter", "plan", "-", "--no-precheck"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own_environment = {**environment, "TMPDIR": str(temporary)}
    plans = [subprocess.Popen(command, env=own_environment, **pipes) for _ in range(2)]
    for plan in plans:
        # Standard input is read in blocks of 1 MiB; long addresses fill them with few rows.
        plan.stdin.write("url\n" + "".join(f"http://pictures.example/{'x' * 500}{n}.jpg\n" for n in range(6_000)))
        plan.stdin.flush()
        assert "planning" in plan.stderr.readline()
    assert len(list(temporary.glob("*/journal.sqlite"))) == 2
    plans[0].kill()
    plans[0].communicate()
    third = subprocess.run(
        command, env=own_environment, input="url\nhttp://x.example/a.jpg\n", text=True, check=False, timeout=60
    )
    assert third.returncode == 0
    assert len(list(temporary.glob("*/journal.sqlite"))) == 1
    assert "6000 rows" in plans[1].communicate()[0]
    assert plans[1].returncode == 0
    assert [path for path in temporary.iterdir() if path.is_dir()] == []
