"""Rows in a process of its own: it finishes its requests when its caller is cancelled or killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.sending_process import start_sending_process
from lightmeter.errors import BudgetReached, JournalLocked, SendingProcessDied, SettingsError
from lightmeter.journal.files import is_run_locked
from lightmeter.options import Options
from lightmeter.settings import read_settings
from tests.e2e.prefect_server import HoldingService
from tests.engine.hostile import listening

ROWS = 120
SHARD_ROWS = 30
OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}
CALLER = """
import asyncio, sys
from lightmeter.api.sending_process import start_sending_process
from lightmeter.settings import read_settings
async def main():
    async with start_sending_process(sys.argv[1], read_settings(), shard_rows=30, rows=120) as sender:
        await sender.outcome()
asyncio.run(main())
"""


def urls(rows=ROWS):
    """Addresses that only the service sees."""
    return [f"http://pictures.example/{number}.jpg" for number in range(rows)]


async def prepare(out, base_url, *, rows=ROWS, **options):
    """Write a run of many images into a folder; return it."""
    return await prepare_run(urls(rows), out, **{**OPTIONS, "base_url": base_url, **options})


async def send(out, **arguments):
    """Send all rows; return the error that stopped the run."""
    async with start_sending_process(out, read_settings(), shard_rows=SHARD_ROWS, rows=ROWS, **arguments) as sender:
        return await sender.outcome()


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
            await until(lambda: service.held_requests >= 2)
            os.killpg(caller.pid, signal.SIGKILL)
            await caller.wait()
        else:
            task = asyncio.create_task(send(out))
            await until(lambda: service.held_requests >= 2)
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


async def test_shards_finish_while_others_wait(tmp_path, charges_at_once):
    """A shard is finished once its rows are answered, although the same session still sends the rows of others."""
    service = HoldingService(answered=75)
    async with listening(service) as base_url:
        await prepare(tmp_path, base_url)
        async with (
            start_sending_process(tmp_path, read_settings(), shard_rows=SHARD_ROWS, rows=ROWS) as sender,
            asyncio.timeout(60),
        ):
            assert await sender.wait_until_finished(0, 59)
            assert not sender.is_finished(60, 119)
            assert 0 < sender.share_done < 1
            service.released = True
            assert await sender.wait_until_finished(60, 119)
            assert await sender.outcome() is None
    assert len(service.charged) == ROWS


async def test_the_reason_of_a_stop_is_returned(tmp_path, charges_at_once):
    """A run that its budget stops returns that error with its hint; shards that it did not pay for are unfinished."""
    service = HoldingService(answered=45)
    async with listening(service) as base_url:
        await prepare(tmp_path, base_url, budget=45, max_frames=1)
        async with start_sending_process(tmp_path, read_settings(), shard_rows=SHARD_ROWS, rows=ROWS) as sender:
            stopped = await sender.outcome()
            finished = [sender.is_finished(first, first + SHARD_ROWS - 1) for first in range(0, ROWS, SHARD_ROWS)]
    assert isinstance(stopped, BudgetReached)
    assert "--budget" in stopped.hint
    assert len(service.charged) == 45
    assert finished == [True, False, False, False]


async def test_an_error_is_raised_in_the_caller(tmp_path, charges_at_once, monkeypatch):
    """An error of the process is raised as the same exception, with its hint."""
    service = HoldingService(answered=100)
    async with listening(service) as base_url:
        await prepare(tmp_path, base_url)
        monkeypatch.delenv("LIGHTMETER_API_KEY")
        with pytest.raises(SettingsError) as caught:
            await send(tmp_path)
    assert "LIGHTMETER_API_KEY" in caught.value.hint
    assert service.charged == []


async def test_a_prepared_run_is_sent_with_its_own_options(tmp_path, charges_at_once):
    """Another start in the same folder changes neither the budget nor the rows of a run that is prepared and sent."""
    service = HoldingService(answered=ROWS)
    async with listening(service) as base_url:
        mine = await prepare(tmp_path, base_url, budget=5, max_frames=1)
        await prepare(tmp_path, base_url, budget=100, max_frames=1)
        assert isinstance(await send(tmp_path, options=mine.options, run_id=mine.run_id), BudgetReached)
        assert len(service.charged) == 5
        other = await prepare(tmp_path, base_url, rows=3, budget=3, max_frames=1)
        with pytest.raises(JournalLocked, match="another run"):
            await send(tmp_path, options=mine.options, run_id=mine.run_id)
        assert (lm.open(tmp_path).header.run_id, lm.open(tmp_path).header.options.budget) == (other.run_id, 3)
    assert len(service.charged) == 5


async def test_files_of_the_working_directory_are_not_imported(tmp_path, charges_at_once, monkeypatch):
    """A file in the working directory with the name of a module does not replace this module in the process."""
    service = HoldingService(answered=ROWS)
    async with listening(service) as base_url:
        await prepare(tmp_path / "out", base_url)
        (tmp_path / "secrets.py").write_text("raise SystemExit(7)\n")
        monkeypatch.chdir(tmp_path)
        assert await send(tmp_path / "out") is None
    assert len(service.charged) == ROWS


@pytest.mark.sweep
async def test_a_killed_process_is_an_error(tmp_path, charges_at_once):
    """A process that was killed raises an error that says how to go on, and its shards are unfinished."""
    service = HoldingService(answered=0)
    async with listening(service) as base_url:
        await prepare(tmp_path, base_url)
        async with (
            start_sending_process(tmp_path, read_settings(), shard_rows=SHARD_ROWS, rows=ROWS) as sender,
            asyncio.timeout(60),
        ):
            await until(lambda: service.held_requests)
            os.kill(sender.pid, signal.SIGKILL)
            assert not await sender.wait_until_finished(0, 29)
            with pytest.raises(SendingProcessDied, match="ended with code -9") as raised:
                await sender.outcome()
            assert "Continue the run" in raised.value.hint


@pytest.mark.sweep
async def test_a_manifest_is_sent_while_it_is_read(tmp_path, charges_at_once):
    """A manifest is planned and sent by the process; the number of its rows is known once it is read."""
    service, manifest = HoldingService(answered=ROWS), tmp_path / "manifest.txt"
    manifest.write_text("\n".join(urls()))
    async with listening(service) as base_url:
        options = Options(**OPTIONS, base_url=base_url, budget=1000)
        streaming = start_sending_process(
            tmp_path / "out", read_settings(), shard_rows=45, source=str(manifest), options=options
        )
        async with streaming as sender, asyncio.timeout(60):
            assert await sender.wait_until_known(0)
            assert await sender.wait_until_known(90)
            assert not await sender.wait_until_known(135)
            assert await sender.wait_until_finished(90, 119)
            assert await sender.outcome() is None
    assert (sender.rows, len(service.charged)) == (ROWS, ROWS)


@pytest.mark.sweep
async def test_the_given_key_overrides_the_environment(tmp_path, charges_at_once, monkeypatch):
    """The process uses the key and the address of the given settings, which its command and environment do not show."""
    service = HoldingService(answered=ROWS)
    async with listening(service) as base_url:
        await prepare(tmp_path, base_url, budget=100, max_frames=1)
        monkeypatch.delenv("LIGHTMETER_API_KEY")
        settings = read_settings().model_copy(update={"api_key": SecretStr("key-of-the-block"), "base_url": base_url})
        async with start_sending_process(tmp_path, settings, shard_rows=SHARD_ROWS, rows=ROWS) as sender:
            proc_files = Path(f"/proc/{sender.pid}/cmdline"), Path(f"/proc/{sender.pid}/environ")
            visible = b"".join(path.read_bytes() for path in proc_files if path.exists())
            assert isinstance(await sender.outcome(), BudgetReached)
    assert b"key-of-the-block" not in visible
    assert len(service.charged) == 100
