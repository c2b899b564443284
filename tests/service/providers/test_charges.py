"""What the service charges for descriptions, with a real adapter and a provider on loopback."""

from __future__ import annotations

import json
import threading
from datetime import date

import pytest

from lightmeter.pricing.rates import PROMPT_BLOCK_CHARS, RateTable, Rounding
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.job import AnalysisJob
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.store.credits import Tariff
from lightmeter.testing import StubAnswer, tiny_png
from lightmeter.wire.request import AnalyzeRequest

RATES = RateTable(date(2026, 1, 1), {"openai": {"descriptions": 2000}, "claude": {"descriptions": 3000}}, ("openai",))
TARIFF = Tariff(RATES, Rounding.IMAGE)


async def nothing_more(_):
    """Reserve nothing more: an image has no frames."""


@pytest.fixture
async def run_request():
    """Return a function that has a worker with one back end process a request with uploads."""

    async def do(adapter, uploads, **parameters):
        request = AnalyzeRequest(backend=[adapter.name], feature=["descriptions"], **parameters)
        names = tuple(f"{number}.png" for number in range(len(uploads)))
        async with Fetcher(allow_private=False) as fetcher:
            worker = Analyzer({adapter.name: adapter}, fetcher, TARIFF, 1)
            try:
                order = AnalysisJob(request, tuple(uploads), names)
                return await worker.run(order, nothing_more)
            finally:
                worker.close()

    return do


@pytest.mark.parametrize(("chars", "paid"), [(0, 2), (1, 2), (PROMPT_BLOCK_CHARS, 2), (PROMPT_BLOCK_CHARS + 1, 4)])
async def test_long_prompts_are_charged_by_the_block(create_adapter, stub, run_request, chars, paid):
    """The price includes 2500 characters of prompt; each further block, even a started one, costs it again."""
    done = await run_request(create_adapter(), [tiny_png()], prompt="x" * chars)
    assert done.charge == paid
    (asset,) = json.loads(done.results_json)["assets"]
    assert asset["descriptions"] == [{"description": "A picture.", "source": "openai"}]


@pytest.mark.parametrize(("backends", "chars", "credits"), [(("openai", "claude"), 5001, 15), (("claude",), 2501, 6)])
def test_every_describing_back_end_charges_its_blocks(backends, chars, credits):  # noqa: A002 (the contract's word)
    """The credits that are held before the work are those that are charged after it."""
    prompt = "x" * chars
    assert TARIFF.max_credits(backends, ["descriptions"], prompt, 1) == credits
    assert TARIFF.charge([(tuple((name, ("descriptions",)) for name in backends), 1)], prompt) == credits


async def test_what_the_provider_refuses_costs_nothing(create_adapter, stub, run_request):
    """If one of two pictures is refused, its error names the back end, and only the other picture is charged."""
    refused = threading.Event()

    def answer(_):
        if refused.is_set():
            return "A picture."
        refused.set()
        return StubAnswer({"error": {"message": "Your input image was rejected by the safety system."}}, 400)

    stub.answer = answer
    done = await run_request(create_adapter(), [tiny_png(1), tiny_png(2)])
    result = json.loads(done.results_json)
    assert done.charge == 2
    assert len(result["errors"]) == 1
    assert "openai" in result["errors"][0]
    assert "rejected by the safety system" in result["errors"][0]
    assert sum(len(asset["descriptions"]) for asset in result["assets"]) == 1


async def test_as_many_calls_at_once_as_allowed(create_adapter, stub, run_request):
    """With four pictures and a concurrency of 3, three calls run at the same time, never four."""
    under_way, most = [], []
    together = threading.Semaphore(0)

    adapter = create_adapter(concurrency=3)
    send = adapter.send

    def watched(*args):
        under_way.append(1)
        most.append(len(under_way))
        if len(most) >= 3:
            together.release(3)
        assert together.acquire(timeout=10)
        context = send(*args)
        under_way.pop()
        return context

    adapter.send = watched
    done = await run_request(adapter, [tiny_png(seed) for seed in range(4)])
    assert (done.charge, max(most)) == (8, 3)
