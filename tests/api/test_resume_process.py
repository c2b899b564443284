"""Rows in a process of its own: it finishes its requests when its caller is cancelled or killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

import lightmeter as lm
from lightmeter.api.resume_process import resume_in_process
from lightmeter.api.runs import prepare_run
from lightmeter.errors import BudgetReached, SettingsError
from lightmeter.journal.files import is_run_locked
from tests.e2e.prefect_server import HoldingService
from tests.engine.hostile import listening

ROWS = 400
CALLER = """
import asyncio, sys
from lightmeter.api.resume_process import resume_in_process
asyncio.run(resume_in_process(sys.argv[1], 0, 399))
"""


async def prepare(out, base_url, **options):
    """Write a run of many images into a folder."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(ROWS)]
    given = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1, "base_url": base_url}
    await prepare_run(urls, out, **given, **options)


async def until(condition):
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (another process makes it true)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("how", ["cancelled", "killed"])
async def test_requests_in_flight_are_answered(how, tmp_path, charges_at_once):
    """When the caller is cancelled or killed, each answer in flight is stored, and the tables are written."""
    service, out = HoldingService(answered=5), tmp_path / "out"
    async with listening(service) as base_url:
        await prepare(out, base_url)
        if how == "killed":
            command = (sys.executable, "-c", CALLER, str(out))
            caller = await asyncio.create_subprocess_exec(*command, start_new_session=True)
            await until(lambda: service.held >= 2)
            os.killpg(caller.pid, signal.SIGKILL)
            await caller.wait()
        else:
            task = asyncio.create_task(resume_in_process(out, 0, ROWS - 1))
            await until(lambda: service.held >= 2)
            task.cancel()
        await asyncio.sleep(0.2)  # for the process to notice
        service.released = True
        await until(lambda: not is_run_locked(out) and list((out / "tables").glob("assets/*.parquet")))
        if how == "cancelled":
            with pytest.raises(asyncio.CancelledError):
                await task
    summary = lm.open(out).summary()
    assert (summary.counts["in_doubt"], summary.held) == (0, 0)
    assert summary.paid == len(service.charged) == summary.requests < ROWS
    assert len(lm.open(out).assets) == ROWS


async def test_the_reason_of_a_stop_is_returned(tmp_path, charges_at_once):
    """A run that its budget stops returns that error with its hint."""
    service = HoldingService(answered=100)
    async with listening(service) as base_url:
        await prepare(tmp_path, base_url, budget=5, max_frames=1)
        stopped = await resume_in_process(tmp_path, 0, ROWS - 1)
    assert isinstance(stopped, BudgetReached)
    assert "--budget" in stopped.hint
    assert len(service.charged) == 5


async def test_an_error_is_raised_in_the_caller(tmp_path, charges_at_once, monkeypatch):
    """An error of the process is raised as the same exception, with its hint."""
    service = HoldingService(answered=100)
    async with listening(service) as base_url:
        await prepare(tmp_path, base_url)
        monkeypatch.delenv("LIGHTMETER_API_KEY")
        with pytest.raises(SettingsError) as caught:
            await resume_in_process(tmp_path, 0, ROWS - 1)
    assert "LIGHTMETER_API_KEY" in caught.value.hint
    assert service.charged == []
