"""A budget smaller than the manifest buys the rows of a rule, and the shares of the whole manifest follow from them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.runs import stream_resume
from lightmeter.errors import SettingsError, UsageError
from lightmeter.export.export_tables import export_tables
from tests.sweeps import sweep

ROWS = 60


class TagService:
    """A service that tags every third picture `sea`, rates every fifth as adult, and charges one credit for each.

    It fails for free for the numbers in `broken`.
    """

    def __init__(self, broken=()):
        self.urls: list[str] = []
        self.broken = broken
        self.balance = 1000

    async def fetch(self, request):
        """POST /api/fetch."""
        body = await request.json()
        urls = [body["url"]] if isinstance(body["url"], str) else body["url"]
        assets = []
        for url in urls:
            number = int(url.rsplit("/", 1)[1].removesuffix(".jpg"))
            if number in self.broken:
                return web.json_response({"error": f"Invalid URLs detected: {url}."}, status=400)
            self.urls.append(url)
            tags = {"sea": [{"name": "sea", "score": 0.95, "source": "clarifai"}]} if number % 3 == 0 else {}
            nsfw = [{"label": "adult", "score": 0.9 if number % 5 == 0 else 0.1, "source": "clarifai"}]
            assets.append({"name": url, "tags": tags, "nsfw": nsfw})
        self.balance -= len(urls)
        paid = {"credits_paid": len(urls), "credits": self.balance}
        return web.json_response({"request_id": f"r{len(self.urls)}", **paid, "all": {"assets": assets, "errors": []}})

    async def credits(self, _):
        """GET /api/credits."""
        return web.json_response({"credits": self.balance})


@asynccontextmanager
async def serving(service):
    app = web.Application()
    app.router.add_post("/api/fetch", service.fetch)
    app.router.add_get("/api/credits", service.credits)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _alone(charges_at_once):
    """A key, and no settings of the user's own."""


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "manifest.csv"
    rows = [f"http://pictures.example/{n}.jpg,{'big' if n < 45 else 'small'}" for n in range(ROWS)]
    path.write_text("url,album\n" + "\n".join(rows) + "\n")
    return path


OPTIONS = {"features": ["tags", "nsfw"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}


@pytest.mark.parametrize("rule", ["stratified:album", *map(sweep, ("random", "diverse"))])
async def test_a_raised_budget_only_adds_rows(rule, manifest, tmp_path):
    """A run with a raised budget has bought the same rows as one with that budget from the start."""
    once, twice = TagService(), TagService()
    for service, budgets in ((once, [24]), (twice, [9, 24])):
        async with serving(service) as base_url:
            out = tmp_path / f"out {len(budgets)}"
            plan = await lm.aio.plan(manifest, base_url=base_url, budget=budgets[0], sample=rule, **OPTIONS)
            run = await lm.aio.run(plan, out)
            assert run.summary().paid == len(service.urls) == budgets[0] == plan.budget_rows.low
            for budget in budgets[1:]:
                before = set(service.urls)
                run = await lm.aio.resume(out, budget=budget)
                assert before < set(service.urls)
    assert set(once.urls) == set(twice.urls)
    assert len(once.urls) == 24
    assert max(int(url.rsplit("/", 1)[1][:-4]) for url in once.urls) > 24
    with pytest.raises(SettingsError, match="other options: sample"):
        await lm.aio.run(plan.with_options(sample="order"), out)


async def test_shards_are_ranges_of_the_send_order(manifest, tmp_path):
    """Shards of a sampled run, one after the other, buy the same rows as a run in one piece."""
    whole, parts = TagService(), TagService()
    async with serving(whole) as base_url:
        await lm.aio.run(
            await lm.aio.plan(manifest, base_url=base_url, budget=20, sample="random", **OPTIONS), tmp_path / "a"
        )
    async with serving(parts) as base_url:
        await prepare_run(manifest, tmp_path / "b", base_url=base_url, budget=20, sample="random", **OPTIONS)
        for first in range(0, ROWS, 15):
            async for _ in stream_resume(tmp_path / "b", rows=(first, first + 14), tables=False):
                pass
    assert set(parts.urls) == set(whole.urls)
    assert len(parts.urls) == 20


async def test_an_interrupted_run_continues_with_the_same_rows(manifest, tmp_path):
    """After a stop in the middle, resume buys the rows that an undisturbed run would have bought."""
    whole, stopped = TagService(), TagService()
    async with serving(whole) as base_url:
        await lm.aio.run(
            await lm.aio.plan(manifest, base_url=base_url, budget=20, sample="random", **OPTIONS), tmp_path / "a"
        )
    async with serving(stopped) as base_url:
        await prepare_run(manifest, tmp_path / "b", base_url=base_url, budget=20, sample="random", **OPTIONS)
        stop = asyncio.Event()
        async for _ in stream_resume(tmp_path / "b", stop=stop):
            if stopped.urls:
                stop.set()
        await lm.aio.resume(tmp_path / "b")
    assert set(stopped.urls) == set(whole.urls)


async def test_shares_of_a_random_sample_have_intervals(manifest, tmp_path):
    """The interval covers the truth, shrinks with the budget, and is a point when every row is answered."""
    service = TagService(broken={3, 4})
    async with serving(service) as base_url:
        plan = await lm.aio.plan(manifest, base_url=base_url, budget=30, sample="random", **OPTIONS)
        run = await lm.aio.run(plan, tmp_path / "out")
        shares = run.shares("tags")
        (sea,) = shares.rows
        assert (shares.sample, shares.population, shares.answered) == ("random", ROWS, 30)
        assert shares.sampled == 30 + sum(run.summary().counts[status] for status in ("failed",))
        assert sea.low < 1 / 3 < sea.high
        assert sea.items == sum(int(url.rsplit("/", 1)[1][:-4]) % 3 == 0 for url in service.urls)
        assert {row.name for row in run.shares("nsfw").rows} == {"any label", "adult"}
        assert run.shares("nsfw", least=0.95).rows[0].items == 0
        page = (await lm.aio.report(run)).read_text(encoding="utf-8")
        assert "Shares in the manifest" in page
        assert f"{sea.low:.1%} to {sea.high:.1%}" in page
        run = await lm.aio.resume(tmp_path / "out", budget=100)
    done = run.shares("tags").rows[0]
    assert run.shares().table().column_names == ["name", "items", "share", "low", "high"]
    assert done.high - done.low < 0.1 < sea.high - sea.low
    assert "left out, which assumes" in run.shares().note
    with pytest.raises(UsageError, match="no shares of 'faces'"):
        run.shares("faces")


async def test_a_feature_that_was_not_requested_has_no_shares(manifest, tmp_path):
    """What was not analyzed is no share of 0."""
    async with serving(TagService()) as base_url:
        plan = await lm.aio.plan(manifest, base_url=base_url, budget=5, **{**OPTIONS, "features": ["tags"]})
        run = await lm.aio.run(plan, tmp_path / "out")
    with pytest.raises(UsageError, match="did not request nsfw"):
        run.shares("nsfw")


async def test_shares_by_stratum_weigh_each_value_by_its_rows(manifest, tmp_path):
    """The stratified estimate covers the truth and counts each album by its share of the manifest."""
    service = TagService()
    async with serving(service) as base_url:
        plan = await lm.aio.plan(manifest, base_url=base_url, budget=24, sample="stratified:album", **OPTIONS)
        run = await lm.aio.run(plan, tmp_path / "out")
    numbers = [int(url.rsplit("/", 1)[1][:-4]) for url in service.urls]
    assert sum(number < 45 for number in numbers) == 18
    (sea,) = run.shares("tags").rows
    assert sea.low < 1 / 3 < sea.high
    assert "rule stratified:album; with 95 % confidence intervals" in run.shares().note


async def test_rows_in_order_give_no_interval(manifest, tmp_path):
    """The first rows of the manifest are no random sample: their shares have no interval, and the note says so."""
    async with serving(TagService()) as base_url:
        run = await lm.aio.run(await lm.aio.plan(manifest, base_url=base_url, budget=10, **OPTIONS), tmp_path / "out")
        (sea,) = run.shares("tags").rows
        assert (sea.items, sea.share, sea.low, sea.high) == (4, 0.4, None, None)
        assert "no interval for the whole manifest would be honest" in run.shares().note
        run = await lm.aio.resume(tmp_path / "out", budget=100)
    assert run.shares("tags").rows[0].low == run.shares("tags").rows[0].high == 1 / 3
    assert "the shares are exact" in run.shares().note


async def test_tables_that_lag_behind_the_journal_are_no_negatives(manifest, tmp_path):
    """Rows answered after the tables were written do not count as rows without the tag."""
    async with serving(TagService()) as base_url:
        plan = await lm.aio.plan(manifest, base_url=base_url, budget=10, sample="random", **OPTIONS)
        run = await lm.aio.run(plan, tmp_path / "out")
        before = run.shares("tags")
        async for _ in stream_resume(tmp_path / "out", tables=False, budget=40):
            pass
    assert run.shares("tags").answered == before.answered == 10
    export_tables(tmp_path / "out")
    assert run.shares("tags").answered == 40


@pytest.mark.parametrize("rule", ["order", "diverse", "random"])
@pytest.mark.parametrize("kept", [0, 1])
async def test_rows_that_left_the_manifest_do_not_count(rule, kept, tmp_path):
    """Shares and agreement are about the present manifest of a folder, whatever its earlier manifests had answered."""
    earlier = [f"http://pictures.example/{n}.jpg" for n in range(4)]
    present = earlier[:kept] + [f"http://pictures.example/{n}.jpg" for n in range(10, 14)]
    async with serving(TagService()) as base_url:
        options = {"base_url": base_url, "sample": rule, **OPTIONS}
        await lm.aio.run(await lm.aio.plan(earlier, budget=100, **options), tmp_path / "out")
        run = await lm.aio.run(await lm.aio.plan(present, budget=1, **options), tmp_path / "out")
    answered = run.summary().counts["ok"]
    shares = run.shares("nsfw")
    assert (shares.population, shares.sampled, shares.answered) == (len(present), answered, answered)
    assert answered < len(present)
    assert "exact" not in shares.note
    assert {loss.items for loss in run.agreement().losses} == {answered}
