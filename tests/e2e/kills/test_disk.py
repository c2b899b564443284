"""A disk that is full, fills up, or may not be written: said clearly, nothing is sent that could not be remembered."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lightmeter.journal.store import open_read_only
from tests.e2e.kills import judge
from tests.e2e.kills.harness import Fault
from tests.e2e.kills.story import AT_ONCE, AT_RISK, POLLED, calls_of

pytestmark = pytest.mark.slow

WAYS = pytest.mark.parametrize("way", [AT_ONCE, POLLED], ids=["at once", "polled"])


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A small disk of its own at `folder`, where the machine allows that."""
    folder.mkdir()
    told = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(told, check=False, capture_output=True).returncode:
        pytest.skip("needs leave to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def said_clearly(ended) -> None:
    """One sentence, with the contract's exit code."""
    assert ended.code == 2, (ended.code, ended.err)
    assert "Traceback" not in ended.err
    assert "error: " in ended.err
    assert "cannot be written" in ended.err or "cannot be read" in ended.err


@pytest.mark.parametrize("free_kb", [0, 40])
def test_a_full_disk_sends_nothing(world, free_kb):
    """Without room for the journal the run does not begin; with room again it goes on."""
    story = world.story()
    with mounted(story.out, "4m"):
        ballast = story.out / "ballast"
        room = os.statvfs(story.out)
        ballast.write_bytes(b"\0" * (room.f_bavail * room.f_frsize - free_kb * 1024))
        said_clearly(story.run())
        assert story.ledger()["posts"] == []
        ballast.unlink()
        ended = story.run()
        story.judged(ended)
        assert ended.code == 0, ended.err


def test_a_read_only_folder_sends_nothing(world):
    """A journal that may not be written is refused before anything is sent; once it may be, the run goes on."""
    story = world.story("--budget", 4)
    with mounted(story.out, "8m"):
        assert story.run().code == 3
        posts = story.ledger()["posts"]
        subprocess.run(["mount", "-o", "remount,ro", str(story.out)], check=True)
        said_clearly(story.run("resume", "--budget", 100))
        assert story.ledger()["posts"] == posts
        subprocess.run(["mount", "-o", "remount,rw", str(story.out)], check=True)
        ended = story.run("resume", "--budget", 100)
        story.judged(ended)
        assert ended.code == 0, ended.err


def without_room(story, fault: Fault | None, **how) -> None:
    """Run until the disk is full, then go on with room, and judge."""
    starved = story.run(fault=fault, **how)
    if starved.code == 0:
        story.judged(starved)
        return
    said_clearly(starved)
    before = judge.remember(story.out)
    ended = story.go_on()
    _, lost = story.judged(ended, before)
    assert lost <= AT_RISK


@WAYS
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_disk_that_fills_up_stops_the_run(traced, way, error):
    """From some page on nothing can be written: no more is sent, answers are kept, and the run goes on later."""
    pages = calls_of(traced, "pwrite64", *way)
    for part in (0.45, 0.7):
        story = traced.story("--max-at-risk", AT_RISK, *way)
        without_room(story, Fault("pwrite64", f"{int(pages * part)}+", f"error={error}"))


@WAYS
def test_a_page_that_cannot_be_written_once(traced, way):
    """A single failed write is never passed over: the run stops, and nothing is lost."""
    for call in ("pwrite64",):
        story = traced.story("--max-at-risk", AT_RISK, *way)
        without_room(story, Fault(call, int(0.6 * calls_of(traced, call, *way)), "error=EIO"))


def test_a_file_may_not_grow(world):
    """A limit on the size of files is a full disk too."""
    story = world.story("--max-at-risk", AT_RISK, rows=60)
    without_room(story, None, limits={"RLIMIT_FSIZE": 150_000})


def test_answers_in_flight_outlive_a_disk_that_fills_up(world):
    """The last byte of the disk goes while requests are out: their answers are written, and nothing more is sent."""
    story = world.story("--max-concurrency", 6, rows=40, latency_s=1.5)
    with mounted(story.out, "6m"):
        running = story.start()
        deadline = time.monotonic() + 60
        while len(story.ledger()["posts"]) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        ballast = story.out / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        ended = running.wait()
        assert ended.code == 2, ended.err
        assert "disk" in ended.err
        assert "Traceback" not in ended.err
        charged = judge.charges(story.ledger())
        ballast.unlink()
        with open_read_only(story.out) as db:
            ((settled, lost),) = db.execute("SELECT sum(state = 'settled'), sum(state = 'uncertain') FROM submissions")
        assert (settled, lost) == (len(charged), 0)
        assert len(charged) < 40
        ended = story.run("resume")
        story.judged(ended)
        assert ended.code == 0, ended.err
