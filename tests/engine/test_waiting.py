"""A run says what it waits for and how long at most, and compares balances only when no charge can come any more."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web

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
        plan = await lm.aio.plan(
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


@pytest.mark.parametrize(
    ("sole_spender", "counts", "paid"),
    [(False, {"ok": 2, "failed": 0, "in_doubt": 1}, 2), (True, {"ok": 2, "failed": 1, "in_doubt": 0}, 3)],
)
async def test_missing_credits_are_ruled_on_after_the_wait(
    tmp_path, monkeypatch, charges_at_once, sole_spender, counts, paid
):
    """Credits that are missing at once are a charge only if they are still missing when no charge can come any more."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "1")
    service = Hostile(lambda number, _: "charge and drop" if number == 2 else "well")
    events, run = await progress_of(tmp_path, service, stop_when_waiting=False, sole_spender=sole_spender)
    assert any(event.waiting and "at most" in event.waiting for event in events)
    assert {status: run.summary().counts[status] for status in counts} == counts
    assert run.summary().paid == paid


class Reserving(Hostile):
    """A service that reserves the price of the second request, loses its answer, and releases the price later."""

    release_s = 1.5

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        """POST /api/fetch."""
        if self.posts == 1:
            self.balance -= self.price
            asyncio.get_running_loop().call_later(self.release_s, self.release)
        return await super().fetch(request)

    def release(self) -> None:
        """Give back the reserved credits: the work has failed."""
        self.balance += self.price


@pytest.mark.parametrize("sole_spender", [False, True])
async def test_credits_that_a_service_only_reserves_are_no_charge(tmp_path, monkeypatch, charges_at_once, sole_spender):
    """If a balance lacks credits that the service reserves, and gets them back, the lost request was not paid."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "3")
    service = Reserving(lambda number, _: "drop" if number == 2 else "well")
    _, run = await progress_of(tmp_path, service, stop_when_waiting=False, sole_spender=sole_spender)
    assert (run.summary().counts["ok"], run.summary().paid, run.summary().held) == (3, 3, 0)
    assert (len(service.charged), service.balance) == (3, 997)


@pytest.mark.parametrize("sole_spender", [False, sweep(True)])
async def test_a_run_waits_until_a_charge_can_no_longer_come(tmp_path, monkeypatch, charges_at_once, sole_spender):
    """If nothing is missing, the row is sent again only when a charge can no longer come."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "2")
    service = Hostile(lambda number, _: "drop" if number == 2 else "well")
    began = time.monotonic()
    _, run = await progress_of(tmp_path, service, stop_when_waiting=False, sole_spender=sole_spender)
    assert time.monotonic() - began > 2
    assert (run.summary().counts["ok"], len(service.charged)) == (3, 3)


class ChargingLate(Hostile):
    """A service that loses the second request after a while, fails the job of the third, and charges the job later."""

    charge_s = 2.2

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        """POST /api/fetch."""
        self.answer_s = 2.5 if self.posts == 1 else 0.0
        if self.posts == 2:
            asyncio.get_running_loop().call_later(self.charge_s, self.charge, ["the failed job"])
        return await super().fetch(request)


async def test_a_failed_job_is_ruled_on_only_after_the_wait(tmp_path, monkeypatch, charges_at_once):
    """The balance that decides about a lost request decides about a later failed job only if its charge is final."""
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "3")
    service = ChargingLate(lambda number, _: {2: "drop", 3: "ack and fail"}.get(number, "well"))
    _, run = await progress_of(tmp_path, service, stop_when_waiting=False)
    assert run.summary().counts["failed"] == 1
    assert "the failed job" in service.charged
    assert run.summary().paid + run.summary().held >= len(service.charged)
