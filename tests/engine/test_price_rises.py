"""Prices that rise during a run, where only polled answers show it, late."""

from __future__ import annotations

import pytest

import lightmeter as lm
from tests.engine.hostile import Hostile, listening

BUDGET = 100
RISE_AT = 20
"""Credits after which the service charges more."""


class RisingPrices(Hostile):
    """A service that answers its first request at once and accepts all others, and charges `factor` credits later."""

    def __init__(self, factor: int) -> None:
        super().__init__(lambda number, _: "answer" if number == 1 else "ack")
        self.factor, self.spent = factor, 0

    def charge(self, urls: list[str]) -> None:
        """Charge for these URLs."""
        if self.spent >= RISE_AT:
            self.price = self.factor
        self.spent += self.price * len(urls)
        super().charge(urls)


@pytest.mark.parametrize("kind", ["jpg", "mp4"])
@pytest.mark.parametrize("factor", [1, 2, 4])
async def test_a_budget_holds_if_prices_double(charges_at_once, tmp_path, factor, kind):
    """Requests in flight reserve at most half of what is left; a rise stops new ones until all of them have ended."""
    service = RisingPrices(factor)
    urls = ["http://pictures.example/0.jpg", *(f"http://pictures.example/{number}.{kind}" for number in range(1, 150))]
    options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1, "max_frames": 1}
    async with listening(service) as base_url:
        plan = await lm.aio.plan(urls, base_url=base_url, budget=BUDGET, **options)
        run = await lm.aio.run(plan, tmp_path / "out", consent=True)
    in_flight = (BUDGET - RISE_AT) // 2
    assert BUDGET - factor < service.spent <= max(BUDGET, RISE_AT + factor * in_flight)
    assert (run.summary().paid, run.exit_code) == (service.spent, 3)
