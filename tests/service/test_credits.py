"""Credits are reserved before a request is processed, charged afterwards for the results, and never overdrawn."""

from __future__ import annotations

import asyncio

import pytest

from lightmeter.pricing.rates import Rounding

# With PostgreSQL too, the concurrent batches show daily that nothing is overdrawn.
repeated_with_postgres = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.sweep])], indirect=True
)


async def test_concurrent_requests_never_overdraw_the_account(starting, calling, database, site, books):
    """64 concurrent batches on a balance for half of them: half are served, and the ledger is consistent."""
    service = await starting(database=database)
    caller = await calling(service, credits=2 * 32 + 1)
    requests = [caller.ask(url=[site.url(f"picture/{seed}.png"), site.url("picture/0.png")]) for seed in range(64)]
    answers = await asyncio.gather(*requests)
    accepted = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 402]
    assert (len(accepted), len(refused)) == (32, 32)
    assert {answer.body["error"] for answer in refused} == {"Insufficient credits."}
    done = await asyncio.gather(*map(caller.finished, accepted))
    assert sum(body["credits_paid"] for body in done) == 64
    assert await caller.balance() == 1
    (book,) = await books(database)
    assert book.is_consistent
    assert (book.held, book.ledger["grants"], book.ledger["revenue"]) == (0, -65, 64)


@repeated_with_postgres
async def test_concurrent_single_pictures_never_overdraw_the_account(starting, calling, database, encoded, books):
    """64 concurrent pictures on a balance for half of them: half are served."""
    service = await starting(database=database)
    caller = await calling(service, credits=32)
    answers = await asyncio.gather(*(caller.ask(file=encoded(seed)) for seed in range(64)))
    assert sorted(answer.status for answer in answers) == [200] * 32 + [402] * 32
    assert min(answer.body["credits"] for answer in answers if answer.status == 200) == 0
    (book,) = await books(database)
    assert (book.is_consistent, book.free, book.held, book.ledger["revenue"]) == (True, 0, 0, 32)


async def test_concurrent_batches_never_overdraw_the_account(calling, service, site):
    """Batches of five on a balance of 12: two are served, and 2 credits remain."""
    caller = await calling(service, credits=12)
    urls = [site.url(f"picture/{seed}.png") for seed in range(5)]
    answers = await asyncio.gather(*(caller.ask(url=urls) for _ in range(6)))
    accepted = [answer for answer in answers if answer.status == 200]
    assert len(accepted) == 2
    for answer in accepted:
        assert (await caller.finished(answer))["credits_paid"] == 5
    assert await caller.balance() == 2


async def test_held_credits_cannot_be_spent_and_are_released(calling, service, site):
    """While the price of a request is reserved, the balance excludes it; the unused rest is released."""
    caller = await calling(service, credits=3)
    urls = [site.url("held/1.png"), site.url("status/404/a.png")]
    answered = await caller.ask(url=urls)
    assert await caller.balance() == 1
    assert (await caller.ask(url=urls)).body["error"] == "Insufficient credits."
    site.gate.set()
    done = await caller.finished(answered)
    assert (done["credits_paid"], done["credits"]) == (1, 2)


async def test_failed_assets_are_not_charged(caller, site):
    """Two of four assets succeed: two are charged, and each failure is an error with its URL."""
    bad = [site.url("status/404/a.png"), site.url("page/b.png")]
    good = [site.url("picture/1.png"), site.url("picture/2.png")]
    done = await caller.finished(await caller.ask(url=[bad[0], good[0], bad[1], good[1]]))
    assert [asset["name"] for asset in done["all"]["assets"]] == good
    assert len(done["all"]["errors"]) == 2
    assert all(any(url in error for error in done["all"]["errors"]) for url in bad)
    assert (done["credits_paid"], done["credits"]) == (2, 998)


async def test_a_single_failure_costs_nothing(caller, site):
    """A missing image gives an error, no asset and no charge."""
    body = (await caller.ask(url=site.url("status/404/a.png"))).body
    assert (body["all"]["assets"], body["credits_paid"], body["credits"]) == ([], 0, 1000)
    assert site.url("status/404/a.png") in body["all"]["errors"][0]


@pytest.mark.parametrize(("rounding", "paid"), [(Rounding.IMAGE, 5), (Rounding.REQUEST, 1)])
async def test_rounding_per_image_and_per_request(starting, calling, encoded, rounding, paid):
    """Five pictures at 0.2 credits cost five credits rounded per image, and one rounded per request."""
    caller = await calling(await starting(rounding=rounding), credits=5)
    done = await caller.finished(await caller.ask(file=[encoded(seed) for seed in range(5)]))
    assert (done["credits_paid"], done["credits"]) == (paid, 5 - paid)


async def test_rounding_per_request_includes_all_frames(starting, calling, site):
    """Three frames at 0.2 credits, rounded per request, cost one credit."""
    caller = await calling(await starting(rounding=Rounding.REQUEST), credits=1)
    done = await caller.finished(await caller.ask(url=site.url("video/tiny.avi")))
    assert (done["credits_paid"], done["credits"]) == (1, 0)


@repeated_with_postgres
async def test_the_ledger_is_always_consistent(starting, calling, database, site, books):
    """The ledger agrees with the balances at any time, and no credits stay reserved in the end."""
    service = await starting(database=database)
    callers = [await calling(service, credits=20 + n) for n in range(3)]
    urls = [site.url("picture/1.png"), site.url("status/500/x.png"), site.url("video/tiny.avi")]
    answers = [(caller, await caller.ask(url=urls)) for caller in callers for _ in range(4)]
    assert all(book.is_consistent and book.free >= 0 for book in await books(database))
    for caller, answer in answers:
        await caller.finished(answer)
    assert [(book.is_consistent, book.held) for book in await books(database)] == [(True, 0)] * 3
    await asyncio.gather(*(caller.ask(url=urls[0]) for caller in callers for _ in range(20)))
    assert [(book.is_consistent, book.free, book.held) for book in await books(database)] == [(True, 0, 0)] * 3


async def test_an_idempotency_key_with_another_request_is_refused(starting, calling, database, encoded):
    """Another picture or feature under a used key is 422 and free; the same content in another encoding is accepted."""
    caller = await calling(await starting(database=database), credits=10)
    name = {"Idempotency-Key": "mine"}
    first = await caller.ask(name, file=encoded(1), feature="colors")
    for other in ({"file": encoded(2), "feature": "colors"}, {"file": encoded(1), "feature": "tags"}):
        refused = await caller.ask(name, **other)
        assert (refused.status, refused.body["status"]) == (422, "failed")
        assert "Idempotency-Key" in refused.body["error"]
    uri = f"data:image/png;base64,{encoded(1)}"
    assert (await caller.ask(name, file=uri, feature=["colors"])).body == first.body
    assert await caller.balance() == 9


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\u00e9"])
async def test_an_invalid_idempotency_key_is_refused(caller, encoded, key):
    """An Idempotency-Key is 1 to 255 printable ASCII characters."""
    answered = await caller.ask({"Idempotency-Key": key}, file=encoded())
    assert (answered.status, answered.body["error"]) == (
        400,
        "Idempotency-Key must be 1 to 255 printable ASCII characters.",
    )


async def test_a_repeated_request_with_its_key_is_charged_once(caller, encoded):
    """The same Idempotency-Key twice in sequence: the same answer, charged once."""
    name = {"Idempotency-Key": "order-1"}
    first = await caller.ask(name, file=encoded(1))
    again = await caller.ask(name, file=encoded(1))
    assert (again.status, again.body) == (first.status, first.body)
    assert await caller.balance() == 999


async def test_a_repeated_query_with_its_key_is_charged_once(caller, site):
    """The same Idempotency-Key with GET /api/fetch: the same answer, charged once."""
    name = {"Idempotency-Key": "order-1"}
    query = {"url": site.url("picture/1.png")}
    first, again = [await caller.send("GET", "/api/fetch", params=query, headers=name) for _ in range(2)]
    assert (again.status, again.body) == (first.status, first.body)
    assert (await caller.ask(name, **query)).body == first.body
    assert await caller.balance() == 999


async def test_concurrent_requests_with_one_key_are_charged_once(caller, site):
    """The same key in eight concurrent requests: one is processed, and all get its answer."""
    name = {"Idempotency-Key": "order-2"}
    requests = [asyncio.create_task(caller.ask(name, url=site.url("held/1.png"))) for _ in range(8)]
    await asyncio.to_thread(site.arrived.acquire)
    await asyncio.sleep(0.1)
    site.gate.set()
    answers = await asyncio.gather(*requests)
    assert {answer.body["request_id"] for answer in answers} == {answers[0].body["request_id"]}
    assert all(answer.body["status"] == "completed" and answer.body["all"]["assets"] for answer in answers)
    assert site.paths == ["/held/1.png"]
    assert await caller.balance() == 999


async def test_a_repeated_batch_with_its_key_is_charged_once(caller, encoded):
    """The same key on a batch: the same acknowledgment, charged once."""
    name = {"Idempotency-Key": "order-3"}
    body = {"file": [encoded(1), encoded(2)]}
    first, second = [await caller.ask(name, **body) for _ in range(2)]
    assert first.body == second.body
    await caller.finished(first)
    assert (await caller.ask(name, **body)).body == first.body
    assert await caller.balance() == 998


async def test_concurrent_requests_for_a_video_with_one_key_are_charged_once(caller, site):
    """Concurrent requests for a URL that turns out to be a video share one acknowledgment and one charge."""
    name = {"Idempotency-Key": "order-4"}
    answers = await asyncio.gather(*(caller.ask(name, url=site.url("video/untold")) for _ in range(6)))
    assert {answer.body["request_id"] for answer in answers} == {answers[0].body["request_id"]}
    assert all(answer.body["status"] in {"queued", "completed"} for answer in answers)
    for answer in answers:
        if answer.body["status"] == "queued":
            assert (await caller.finished(answer))["credits_paid"] == 3
    assert site.paths == ["/video/untold"]
    assert await caller.balance() == 997


async def test_idempotency_keys_are_separate_by_account(calling, service, encoded):
    """Two accounts may use the same key: each has its own request."""
    callers = [await calling(service, credits=3) for _ in range(2)]
    ids = [(await caller.ask({"Idempotency-Key": "same"}, file=encoded())).body["request_id"] for caller in callers]
    assert ids[0] != ids[1]
    assert [await caller.balance() for caller in callers] == [2, 2]


async def test_a_request_without_credits_does_not_use_its_key(calling, service, encoded):
    """A key of a request that was refused for lack of credits can be used again."""
    caller = await calling(service, credits=1)
    name = {"Idempotency-Key": "dear"}
    assert (await caller.ask(name, file=[encoded(1), encoded(2)])).status == 402
    assert (await caller.ask(name, file=encoded(1))).status == 200
