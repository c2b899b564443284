"""By the ledger of the real service: a budget is never exceeded, and it is used up while rows are left."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import product

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.pricing.rates import Rounding
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.service.faults.config import Faults
from lightmeter.service.store.credits import balances
from lightmeter.service.store.store import Store
from lightmeter.testing import tiny_jpeg

GRANTED = 1000
KEY = "key"
CALM: dict[str, object] = {}
ROUGH = {
    "drop-after": 0.04,
    "drop-before": 0.04,
    "5xx": {"chance": 0.03, "when": "before"},
    "429": {"bucket": 150, "burst": 20},
    "seed": 5,
}


@pytest.fixture(autouse=True)
def _alone_with_a_key(charges_at_once, monkeypatch):
    monkeypatch.setenv("LIGHTMETER_API_KEY", KEY)
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "1")  # a dropped request is done within that


@asynccontextmanager
async def pictures():
    """A server with any number of different images."""
    app = web.Application()

    async def picture(request: web.Request) -> web.Response:
        return web.Response(body=tiny_jpeg(int(request.match_info["number"])), content_type="image/jpeg")

    app.router.add_get("/{number}.jpg", picture)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def service(folder, rounding: Rounding, faults: dict[str, object]):
    """The service, and a function that returns what its ledger has charged."""
    database = f"sqlite:///{folder / 'service.db'}"
    config = ServiceConfig(
        database=database,
        backends=("palette",),
        accounts={KEY: GRANTED},
        allow_private=True,
        rounding=rounding,
        faults=Faults.parse(faults),
    )
    running = await start_service(config)
    charged = []
    try:
        yield running.base_url, charged
    finally:
        await running.close()
        store = Store(database)
        (account,) = await store.read(balances)
        charged.append(GRANTED - account.free - account.held)
        store.close()


CASES = list(product([CALM, ROUGH], Rounding, [1, 5]))
DAILY = (CALM, Rounding.REQUEST, 1)


def name_of(faults, rounding, size):
    """Return the id of a case."""
    return f"{'rough' if faults else 'calm'}-{rounding}-{size}"


@pytest.mark.parametrize(
    ("faults", "rounding", "size", "budget"),
    [
        *(
            pytest.param(*case, 40, id=name_of(*case), marks=[] if case == DAILY else pytest.mark.sweep)
            for case in CASES
        ),
        pytest.param(ROUGH, Rounding.REQUEST, 5, 20, id="rough-request-5-small"),
    ],
)
async def test_a_budget_is_used_up_and_never_exceeded(tmp_path, rounding, size, faults, budget):
    """With concurrent requests, faults and each rounding, the service's ledger stays within the budget."""
    rows = budget + 20 if rounding is Rounding.IMAGE or size == 1 else 6 * budget + 20
    options = {"features": ["colors"], "backends": ["palette"], "precheck": False, "batch_size": size}
    async with pictures() as site, service(tmp_path, rounding, faults) as (base_url, charged):
        urls = [f"{site}/{number}.jpg" for number in range(rows)]
        plan = await lm.aio.plan(urls, budget=budget, base_url=base_url, sole_spender=True, upload="never", **options)
        run = await lm.aio.run(plan, tmp_path / "out")
        summary = run.summary()
    assert charged[0] <= summary.paid + summary.held <= budget
    assert charged[0] >= 0.95 * budget
    assert (summary.paid, summary.held) == (charged[0], 0)  # alone on the account, each loss was told apart
    assert summary.counts["over_budget"] > 0
    assert run.exit_code == 3


async def test_the_budget_of_a_key_holds_for_two_runs(tmp_path, monkeypatch):
    """The second run with a key stops when both runs have used up the key's budget, and resumes when it is raised."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "8")
    options = {"features": ["colors"], "backends": ["palette"], "precheck": False, "upload": "never"}
    async with pictures() as site, service(tmp_path, Rounding.IMAGE, CALM) as (base_url, charged):
        for name, numbers in (("one", range(5)), ("two", range(5, 11))):
            urls = [f"{site}/{number}.jpg" for number in numbers]
            run = await lm.aio.run(await lm.aio.plan(urls, base_url=base_url, **options), tmp_path / name)
        summary = run.summary()
        assert (summary.counts["ok"], summary.counts["over_budget"], run.exit_code) == (3, 3, 3)
        assert [reason.reason for reason in run.reasons()] == ["key_budget"]
        assert "LIGHTMETER_KEY_BUDGET" in run.stopped_by.hint
        monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "11")
        run = await lm.aio.resume(run.folder)
        assert (run.summary().counts["ok"], run.exit_code) == (6, 0)
    assert charged == [11]
