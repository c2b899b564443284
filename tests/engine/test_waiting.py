"""Who waits is told what for and how long at most, and nobody waits for what the balance already decides."""

from __future__ import annotations

import asyncio
import time

import pytest

import lightmeter as lm
from lightmeter.api.runs import stream_run
from lightmeter.cli.progress import _details
from lightmeter.planning.progress import Progress
from tests.engine.hostile import Hostile, listening


async def looks_at(tmp_path, service, *, stop_when_waiting, **options):
    """Every look at a run against a service, and how it ended."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(3)]
    stop, looks, last = asyncio.Event(), [], None
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
                looks.append(step)
                if step.waiting and "at most" in step.waiting and stop_when_waiting:
                    stop.set()
    return looks, last


async def test_a_wait_says_what_for_and_how_long_at_most(tmp_path, monkeypatch, charges_at_once):
    """One lost request: the bar is not full, the row in doubt is counted apart, and the seconds left are named."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "200")
    service = Hostile(lambda number, _: "drop" if number == 2 else "well")
    looks, run = await looks_at(tmp_path, service, stop_when_waiting=True)
    waiting = [look for look in looks if look.waiting and "at most" in look.waiting]
    assert waiting[0].finished == 2 < waiting[0].rows
    assert waiting[0].counts["in_doubt"] == 1
    seconds = int(waiting[0].waiting.split(" s at most")[0].split()[-1])
    assert 150 < seconds <= 200
    assert "at most for the balance to tell of 1 row · " in _details(waiting[0])
    assert "1 in doubt" in _details(waiting[0])
    assert any("Ctrl-C" in note for note in waiting[0].notes)
    assert run.summary().counts["in_doubt"] == 1


async def test_nobody_waits_for_what_is_missing_already(tmp_path, monkeypatch, charges_at_once):
    """Credits are missing, others may have spent them: waiting cannot prove more, so the run ends at once."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
    service = Hostile(lambda number, _: "charge and drop" if number == 2 else "well")
    _, run = await asyncio.wait_for(looks_at(tmp_path, service, stop_when_waiting=False), 60)
    assert (run.summary().counts["ok"], run.summary().counts["in_doubt"]) == (2, 1)


async def test_alone_on_the_account_a_charge_that_is_seen_needs_no_wait(tmp_path, monkeypatch, charges_at_once):
    """All that could have been charged is missing, and nobody else spends: it was paid for, and that is final."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
    service = Hostile(lambda number, _: "charge and drop" if number == 2 else "well")
    _, run = await asyncio.wait_for(looks_at(tmp_path, service, stop_when_waiting=False, sole_spender=True), 60)
    assert (run.summary().counts["ok"], run.summary().counts["failed"], run.summary().paid) == (2, 1, 3)


@pytest.mark.parametrize("sole_spender", [False, True])
async def test_what_may_still_be_charged_is_waited_for(tmp_path, monkeypatch, charges_at_once, sole_spender):
    """Nothing is missing yet: only once no charge can come any more is the row sent again."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "3")
    service = Hostile(lambda number, _: "drop" if number == 2 else "well")
    began = time.monotonic()
    _, run = await looks_at(tmp_path, service, stop_when_waiting=False, sole_spender=sole_spender)
    assert time.monotonic() - began > 3
    assert (run.summary().counts["ok"], len(service.charged)) == (3, 3)
