"""A disk that is full, fills up or is read-only gives a clear error, and nothing is sent that cannot be recorded."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress

import pytest

from lightmeter.journal.store import open_read_only
from tests.disks import mounted_disk
from tests.e2e.kills import run_checks
from tests.e2e.kills.processes import Fault
from tests.e2e.kills.scenario import MAX_AT_RISK, POLLED, SYNCHRONOUS, count_calls
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

BATCH_OPTIONS = pytest.mark.parametrize(
    "batch_option",
    [pytest.param(SYNCHRONOUS, id="at once"), sweep(POLLED, name="polled")],
)


def check_clear_error(result) -> None:
    """Check that the error is one clear sentence, with exit code 2."""
    assert result.code == 2, (result.code, result.err)
    assert "Traceback" not in result.err
    assert "error: " in result.err
    assert "cannot be written" in result.err or "cannot be read" in result.err


@pytest.mark.parametrize("free_kb", [0, sweep(40)])
def test_a_full_disk_sends_nothing(factory, free_kb):
    """Without space for the journal the run sends nothing; with space again it continues."""
    scenario = factory.create()
    with mounted_disk(scenario.out, "4m"):
        ballast = scenario.out / "ballast"
        room = os.statvfs(scenario.out)
        ballast.write_bytes(b"\0" * (room.f_bavail * room.f_frsize - free_kb * 1024))
        check_clear_error(scenario.run())
        assert scenario.ledger()["posts"] == []
        ballast.unlink()
        result = scenario.run()
        scenario.check(result)
        assert result.code == 0, result.err


def test_a_read_only_folder_sends_nothing(factory):
    """A run with a read-only journal sends nothing; once the journal is writable, the run continues."""
    scenario = factory.create("--budget", 4)
    with mounted_disk(scenario.out, "8m"):
        assert scenario.run().code == 3
        posts = scenario.ledger()["posts"]
        subprocess.run(["mount", "-o", "remount,ro", str(scenario.out)], check=True)
        check_clear_error(scenario.run("resume", "--budget", 100))
        assert scenario.ledger()["posts"] == posts
        subprocess.run(["mount", "-o", "remount,rw", str(scenario.out)], check=True)
        result = scenario.run("resume", "--budget", 100)
        scenario.check(result)
        assert result.code == 0, result.err


def run_until_disk_is_full(scenario, fault: Fault | None, **how) -> None:
    """Run until the disk is full, then continue with free space, and check the run."""
    stopped = scenario.run(fault=fault, **how)
    if stopped.code == 0:
        scenario.check(stopped)
        return
    check_clear_error(stopped)
    before = run_checks.read_snapshot(scenario.out)
    result = scenario.continue_run()
    _, lost = scenario.check(result, before)
    assert lost <= MAX_AT_RISK


@BATCH_OPTIONS
@pytest.mark.parametrize("error", ["ENOSPC", sweep("EIO")])
def test_a_disk_that_fills_up_stops_the_run(traced_factory, batch_option, error):
    """When writes begin to fail, the run stops sending, keeps its answers, and can continue later."""
    pages = count_calls(traced_factory, "pwrite64", *batch_option)
    for part in (0.45, 0.7):
        scenario = traced_factory.create("--max-at-risk", MAX_AT_RISK, *batch_option)
        run_until_disk_is_full(scenario, Fault("pwrite64", f"{int(pages * part)}+", f"error={error}"))


@pytest.mark.sweep
@BATCH_OPTIONS
def test_a_page_that_cannot_be_written_once(traced_factory, batch_option):
    """A single failed write stops the run, and nothing is lost."""
    for call in ("pwrite64",):
        scenario = traced_factory.create("--max-at-risk", MAX_AT_RISK, *batch_option)
        run_until_disk_is_full(
            scenario, Fault(call, int(0.6 * count_calls(traced_factory, call, *batch_option)), "error=EIO")
        )


def test_a_file_may_not_grow(factory):
    """A limit on the size of files has the same effect as a full disk."""
    scenario = factory.create("--max-at-risk", MAX_AT_RISK, rows=60)
    run_until_disk_is_full(scenario, None, limits={"RLIMIT_FSIZE": 150_000})


def test_answers_in_flight_outlive_a_disk_that_fills_up(factory):
    """If the disk fills up while requests are in flight, their answers are stored, and nothing more is sent."""
    scenario = factory.create("--max-concurrency", 6, rows=40, latency_s=1.5)
    with mounted_disk(scenario.out, "6m"):
        running = scenario.start()
        deadline = time.monotonic() + 60
        while len(scenario.ledger()["posts"]) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        ballast = scenario.out / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        result = running.wait()
        assert result.code == 2, result.err
        assert "disk" in result.err
        assert "Traceback" not in result.err
        charged = run_checks.charge_counts(scenario.ledger())
        ballast.unlink()
        factory.service.rules(scenario.key, latency_s=0.01)
        with open_read_only(scenario.out) as db:
            ((settled, lost),) = db.execute("SELECT sum(state = 'settled'), sum(state = 'uncertain') FROM submissions")
        assert (settled, lost) == (len(charged), 0)
        assert len(charged) < 40
        result = scenario.run("resume")
        scenario.check(result)
        assert result.code == 0, result.err
