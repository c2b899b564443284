"""A run says what it waits for and how long at most, and does not wait if the balance decides at once."""

from __future__ import annotations

import asyncio
import time

import pytest

import lightmeter as lm
from lightmeter.api.progress_display import _details
from lightmeter.api.runs import stream_run
from lightmeter.planning.progress import Progress
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep


async def progress_of(tmp_path, service, *, stop_when_waiting, **options):
    """Return every progress event of a run against a service, and the run."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(3)]
    stop, events, last = asyncio.Event(), [], None
    async with listening(service) as base_url:
        plan = await lm.plan(
            urls,
            features=["tags"],
            backends=["clarifai"],
            precheck=False,
            base_url=base_url,
            max_concurrency=1,
            **options,
        )
        async for step in stream_run(plan, tmp_path / "out", stop=stop):
            last = step
            if isinstance(step, Progress):
                events.append(step)
                if step.waiting and "at most" in step.waiting and stop_when_waiting:
                    stop.set()
    return events, last


async def test_progress_says_what_the_run_waits_for(tmp_path, monkeypatch, charges_at_once):
    """While a lost request may be charged, progress counts its row as in doubt and names the seconds left."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "200")
    service = Hostile(lambda number, _: "drop" if number == 2 else "well")
    events, run = await progress_of(tmp_path, service, stop_when_waiting=True)
    waiting = [event for event in events if event.waiting and "at most" in event.waiting]
    assert waiting[0].finished == 2 < waiting[0].rows
    assert waiting[0].counts["in_doubt"] == 1
    seconds = int(waiting[0].waiting.split(" s at most")[0].split()[-1])
    assert 150 < seconds <= 200
    assert "at most until the balance shows the charge of 1 row · " in _details(waiting[0])
    assert "1 in doubt" in _details(waiting[0])
    assert any("Ctrl-C" in note for note in waiting[0].notes)
    assert run.summary().counts["in_doubt"] == 1


async def test_a_run_does_not_wait_if_credits_are_missing_already(tmp_path, monkeypatch, charges_at_once):
    """If credits are missing and others may have spent them, waiting proves nothing, so the run ends at once."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
    service = Hostile(lambda number, _: "charge and drop" if number == 2 else "well")
    _, run = await asyncio.wait_for(progress_of(tmp_path, service, stop_when_waiting=False), 60)
    assert (run.summary().counts["ok"], run.summary().counts["in_doubt"]) == (2, 1)


async def test_the_sole_spender_does_not_wait_if_the_charge_is_visible(tmp_path, monkeypatch, charges_at_once):
    """If nobody else spends and the whole price is missing, the request was paid, without a wait."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
    service = Hostile(lambda number, _: "charge and drop" if number == 2 else "well")
    _, run = await asyncio.wait_for(progress_of(tmp_path, service, stop_when_waiting=False, sole_spender=True), 60)
    assert (run.summary().counts["ok"], run.summary().counts["failed"], run.summary().paid) == (2, 1, 3)


@pytest.mark.parametrize("sole_spender", [False, sweep(True)])
async def test_a_run_waits_until_a_charge_can_no_longer_come(tmp_path, monkeypatch, charges_at_once, sole_spender):
    """If nothing is missing, the row is sent again only when a charge can no longer come."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "2")
    service = Hostile(lambda number, _: "drop" if number == 2 else "well")
    began = time.monotonic()
    _, run = await progress_of(tmp_path, service, stop_when_waiting=False, sole_spender=sole_spender)
    assert time.monotonic() - began > 2
    assert (run.summary().counts["ok"], len(service.charged)) == (3, 3)
