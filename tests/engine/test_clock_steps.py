"""A run survives a clock that is set while it works: no answer is lost, nothing is paid twice, and a note says so."""

from __future__ import annotations

import asyncio

import pytest

import lightmeter as lm
from lightmeter.clock import SystemClock
from lightmeter.engine.engine import open_engine
from lightmeter.export.export_tables import export_tables
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.header import read_run_header
from lightmeter.journal.store import open_read_only
from lightmeter.run_session.session import open_session, prepare_run_journal
from lightmeter.settings import read_settings
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep

HOUR_S = 3600.0


class Stepping(SystemClock):
    """A system clock that jumps when `step_s` is set."""

    step_s = 0.0

    def now(self) -> float:
        return super().now() + self.step_s


async def run_with(folder, service, *, clock, adopted=False, **options):
    """Plan, prepare and finish a run with this clock; returns the run and its notes."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(4)]
    async with listening(service) as base_url:
        if not adopted:
            plan = await lm.aio.plan(
                urls,
                features=["tags"],
                backends=["clarifai"],
                precheck=False,
                base_url=base_url,
                batch_size=1,
                **options,
            )
            prepare_run_journal(plan, folder)
        options_now = read_run_header(folder).options.model_copy(
            update={"base_url": base_url, "budget": None} if adopted else {}
        )
        async with (
            open_session(folder, read_settings(), options_now, clock=clock) as session,
            open_engine(session) as engine,
        ):
            await engine.recover()
            await engine.spend()
            task = asyncio.create_task(engine.finish())
            while not task.done():
                engine.progress()
                await asyncio.sleep(0.02)
            await task
            notes = list(engine.run_state.notes)
    export_tables(folder)
    return lm.open(folder), notes


@pytest.mark.parametrize("step_s", [HOUR_S, *map(sweep, (-24 * HOUR_S, 25 * HOUR_S))])
async def test_a_clock_step_does_not_shorten_the_wait_for_charges(tmp_path, monkeypatch, charges_at_once, step_s):
    """A lost request may be charged for a second: the balance proves something only after a real second."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "1.5")
    clock = Stepping()
    service = Hostile(lambda number, _: "drop" if number == 2 else "well")
    words = service.script

    def script(number, body):
        if number == 2:  # charged a second after its connection ended, and the clock is set meanwhile
            clock.step_s = step_s
            asyncio.get_running_loop().call_later(1.0, service.charge, [body["url"]])
        return words(number, body)

    service.script = script
    run, notes = await asyncio.wait_for(run_with(tmp_path / "out", service, clock=clock), 30)
    assert sorted(service.charged) == sorted(set(service.charged)), "paid twice"
    assert run.summary().counts["in_doubt"] == 1
    assert any("clock was set" in note for note in notes)
    with open_read_only(run.folder) as db:
        assert "clock was set" in get_meta(db)["notes"]


@pytest.mark.parametrize("step_s", [25 * HOUR_S, sweep(-24 * HOUR_S)])
async def test_a_clock_step_does_not_expire_answers(tmp_path, charges_at_once, step_s):
    """A jump of the clock does not make a polled request expire."""
    clock = Stepping()
    service = Hostile(lambda *_: "ack", polls_until_done=2)
    words = service.script

    def script(number, body):
        clock.step_s = step_s
        return words(number, body)

    service.script = script
    run, _ = await asyncio.wait_for(run_with(tmp_path / "out", service, clock=clock), 30)
    assert (run.summary().counts["ok"], run.summary().paid) == (4, 4)


async def test_a_clock_step_between_two_starts_is_noted(tmp_path, monkeypatch, charges_at_once):
    """Times from before a clock change are not used, and a note says so."""
    clock = Stepping()
    service = Hostile(lambda *_: "well")
    await run_with(tmp_path / "out", service, clock=clock, budget=2)
    clock.step_s = -24 * HOUR_S
    _, notes = await run_with(tmp_path / "out", service, clock=clock, adopted=True)
    assert any("since the last start of the run" in note for note in notes)
