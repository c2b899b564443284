"""Whole runs against the project's own service with injected faults, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

import lightmeter as lm
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.service.faults.config import Faults
from lightmeter.testing import tiny_png

KEY, CREDITS, ROWS = "key", 100, 24


@pytest.fixture
def rehearse(tmp_path, charges_at_once):
    """Run images against a service with these faults; returns (run, count of each fault, credits spent)."""

    async def run(faults, **options):
        manifest = tmp_path / "manifest.csv"
        for number in range(ROWS):
            (tmp_path / f"{number}.png").write_bytes(tiny_png(number))
        manifest.write_text("path\n" + "".join(f"{number}.png\n" for number in range(ROWS)))
        database = f"sqlite:///{tmp_path / 'service.db'}"
        config = ServiceConfig(database, ("palette",), {KEY: CREDITS}, faults=Faults.parse(faults))
        service = await start_service(config)
        try:
            options_of_plan = {
                "features": ["colors"],
                "backends": ["palette"],
                "precheck": False,
                "budget": CREDITS,
                **options,
            }
            plan = await lm.aio.plan(manifest, base_url=service.base_url, max_concurrency=8, **options_of_plan)
            done = await lm.aio.run(plan, tmp_path / "out")
            async with lm.aio.Client(service.base_url, KEY) as client:
                return done, service.fault_counts, CREDITS - await client.credits()
        finally:
            await service.close()

    return run


async def test_a_hidden_limit_costs_nothing_but_time(rehearse):
    """An undocumented token bucket refuses requests: each row is still answered, and paid for once."""
    async with asyncio.timeout(60):
        run, met, spent = await rehearse({"429": {"bucket": 20, "burst": 2}})
    summary = run.summary()
    assert met["429"] > 0
    assert summary.counts["ok"] == ROWS
    assert summary.paid == spent == ROWS
    assert summary.held == 0


async def test_dropped_answers_are_proven_paid_by_the_balance(rehearse):
    """Charged requests without an answer are proven paid if nobody else spends; none is paid for twice."""
    async with asyncio.timeout(60):
        run, met, spent = await rehearse({"drop-after": 0.2, "seed": 3}, sole_spender=True)
    summary, lost = run.summary(), met["drop-after"]
    assert lost > 0
    assert (summary.counts["ok"], summary.counts["failed"]) == (ROWS - lost, lost)
    assert summary.paid == spent == ROWS
    assert summary.held == 0


async def test_dropped_answers_stay_in_doubt_where_others_spend(rehearse):
    """If others may have changed the balance, the price stays held and nothing is sent again."""
    async with asyncio.timeout(60):
        run, met, spent = await rehearse({"drop-after": 0.2, "seed": 3})
    summary, lost = run.summary(), met["drop-after"]
    assert (summary.counts["ok"], summary.counts["in_doubt"]) == (ROWS - lost, lost)
    assert summary.paid + summary.held == spent == ROWS


async def test_dropped_requests_are_sent_again(rehearse):
    """The balance proves that dropped requests were not charged, and every row is answered in the end."""
    async with asyncio.timeout(60):
        run, met, spent = await rehearse({"drop-before": 0.2, "seed": 3})
    summary = run.summary()
    assert met["drop-before"] > 0
    assert summary.counts["ok"] == ROWS
    assert summary.paid == spent == ROWS
    assert summary.held == 0
