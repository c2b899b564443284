"""No account can keep the service from working for the others, whatever it sends and whatever it pays."""

from __future__ import annotations

import asyncio

import pytest

from lightmeter.service.analysis.analyzer_limits import AnalyzerLimits

# With PostgreSQL too, the test of a full account shows daily that the other one is served.
repeated_with_postgres = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.sweep])], indirect=True
)
DEADLINE_S = 30
"""Ends a test that hangs; nothing is measured."""


async def answered(coroutine):
    """Return the result of a coroutine that must not wait for another account."""
    return await asyncio.wait_for(coroutine, DEADLINE_S)


def blocked_urls(site, count):
    """Return URLs that send no byte until the site's gate opens."""
    return [site.url(f"held/{number}.png") for number in range(count)]


async def use_without_waiting(caller, site):
    """Analyze a single picture and a batch."""
    single = await answered(caller.ask(url=site.url("picture/1.png")))
    assert (single.status, single.body["status"]) == (200, "completed"), single.body
    batch = await answered(caller.ask(url=[site.url("picture/2.png"), site.url("picture/3.png")]))
    assert (await answered(caller.finished(batch)))["credits_paid"] == 2


@pytest.mark.parametrize("fields", [{"feature": "faces"}, {"backend": "googlevision"}], ids=str)
async def test_nothing_is_admitted_free(starting, calling, database, site, fields):
    """A request whose price is 0 needs and reserves a credit for each asset, and is charged 0."""
    service = await starting(database=database)
    poor, rich = await calling(service, credits=1), await calling(service, credits=5)
    refused = await poor.ask(url=blocked_urls(site, 2), **fields)
    assert (refused.status, refused.body["error"]) == (402, "Insufficient credits.")
    accepted = await rich.ask(url=blocked_urls(site, 2), **fields)
    assert await rich.balance() == 3
    site.gate.set()
    done = await rich.finished(accepted)
    assert (done["credits_paid"], done["credits"], await rich.balance()) == (0, 5, 5)


async def test_a_free_video_reserves_a_credit_for_each_frame(service, calling, site):
    """A video at price 0 is analyzed only for an account with a credit for each of its frames."""
    poor, rich = await calling(service, credits=2), await calling(service, credits=3)
    fields = {"url": site.url("video/1.mp4"), "feature": "faces", "max_frames": 2**31 - 1}
    refused, accepted = [await caller.finished(await caller.ask(**fields)) for caller in (poor, rich)]
    assert refused["all"]["errors"][-1] == f"{fields['url']}: Insufficient credits."
    assert not any("Insufficient" in error for error in accepted["all"]["errors"])
    assert (refused["credits"], accepted["credits"]) == (2, 3)


@pytest.mark.parametrize("maximum", [None, 3])
async def test_a_request_has_a_maximum_of_assets(starting, calling, site, encoded, maximum):
    """A request with more URLs and files than the maximum is a 400 that says how many are allowed."""
    service = await starting(**({} if maximum is None else {"max_assets": maximum}))
    caller = await calling(service)
    maximum = maximum or 100
    urls = [site.url("picture/1.png")] * (maximum - 1)
    assert (await caller.ask(url=urls, file=encoded())).body["status"] == "queued"
    refused = await caller.ask(url=urls, file=[encoded()] * 2)
    assert refused.status == 400
    assert f"at most {maximum} together; these are {maximum + 1}" in refused.body["error"]


@repeated_with_postgres
async def test_silent_urls_of_one_account_do_not_delay_another(starting, calling, database, site):
    """While an account has more silent URLs than the service opens at once, another one gets its answers."""
    service = await starting(database=database, drain_s=0.1)
    hostile, other = await calling(service), await calling(service)
    for _ in range(20):
        assert (await hostile.ask(url=blocked_urls(site, 8))).body["status"] == "queued"
    singles = [asyncio.create_task(hostile.ask(url=url)) for url in blocked_urls(site, 70)]
    await asyncio.to_thread(lambda: [site.arrived.acquire(timeout=20) for _ in range(64)])
    await use_without_waiting(other, site)
    site.gate.set()
    await answered(asyncio.gather(*singles))


async def test_a_full_account_is_refused_alone(starting, calling, database, site, portal):
    """An account with as many unfinished pictures as allowed gets 503; another one is served, also after a restart."""
    limits = AnalyzerLimits(max_pending_pictures=20)
    service = await starting(database=database, limits=limits, drain_s=0.1, lease_s=1.0)
    hostile, other = await calling(service), await calling(service)
    assert (await hostile.ask(url=blocked_urls(site, 60))).body["status"] == "queued"
    await asyncio.to_thread(site.arrived.acquire, timeout=20)
    refused = await hostile.ask(url=site.url("picture/1.png"))
    assert (refused.status, "Retry-After" in refused.headers) == (503, True)
    await use_without_waiting(other, site)
    await portal.call(service.close())
    again = await starting(database=database, limits=limits, drain_s=0.1, lease_s=1.0)
    await asyncio.to_thread(site.arrived.acquire, timeout=20)
    other.base_url = again.base_url
    await use_without_waiting(other, site)
