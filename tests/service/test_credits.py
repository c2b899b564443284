"""Money: held before the work, charged after it, for what was delivered, never twice, never below zero."""

from __future__ import annotations

import asyncio

import pytest

from lightmeter.pricing.rates import Rounding


async def test_half_a_fortune_serves_half_the_requests(starting, calling, database, site, books):
    """64 callers at once on a balance for half: floor(balance / price) are served, and the books agree."""
    service = await starting(database=database)
    caller = await calling(service, credits=2 * 32 + 1)
    kinds = [caller.ask(url=[site.url(f"picture/{seed}.png"), site.url("picture/0.png")]) for seed in range(64)]
    answers = await asyncio.gather(*kinds)
    taken = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 402]
    assert (len(taken), len(refused)) == (32, 32)
    assert {answer.body["error"] for answer in refused} == {"Insufficient credits."}
    done = await asyncio.gather(*map(caller.finished, taken))
    assert sum(body["credits_paid"] for body in done) == 64
    assert await caller.balance() == 1
    (book,) = await books(database)
    assert book.is_consistent
    assert (book.held, book.ledger["grants"], book.ledger["revenue"]) == (0, -65, 64)


async def test_single_pictures_at_once_never_overspend(starting, calling, database, encoded, books):
    """64 single pictures at once, answered at once, on a balance for half of them."""
    service = await starting(database=database)
    caller = await calling(service, credits=32)
    answers = await asyncio.gather(*(caller.ask(file=encoded(seed)) for seed in range(64)))
    assert sorted(answer.status for answer in answers) == [200] * 32 + [402] * 32
    assert min(answer.body["credits"] for answer in answers if answer.status == 200) == 0
    (book,) = await books(database)
    assert (book.is_consistent, book.free, book.held, book.ledger["revenue"]) == (True, 0, 0, 32)


async def test_batches_never_spend_more_than_there_is(calling, service, site):
    """Batches of five on a balance of 12: two are taken, and what is left is the rest."""
    caller = await calling(service, credits=12)
    urls = [site.url(f"picture/{seed}.png") for seed in range(5)]
    answers = await asyncio.gather(*(caller.ask(url=urls) for _ in range(6)))
    taken = [answer for answer in answers if answer.status == 200]
    assert len(taken) == 2
    for answer in taken:
        assert (await caller.finished(answer))["credits_paid"] == 5
    assert await caller.balance() == 2


async def test_what_is_held_cannot_be_spent_and_comes_back(calling, service, site):
    """While a video's worst price is held the balance is without it; what it did not cost is given back."""
    caller = await calling(service, credits=12)
    urls = [site.url("held/1.mp4"), site.url("picture/2.png")]
    answered = await caller.ask(url=urls, max_frames=10)
    assert await caller.balance() == 1
    assert (await caller.ask(url=urls)).body["error"] == "Insufficient credits."
    site.gate.set()
    done = await caller.finished(answered)
    assert (done["credits_paid"], done["credits"]) == (2, 10)


async def test_failed_assets_are_not_charged(caller, site):
    """Two of four are good: two are charged, each other one is a sentence with its URL."""
    bad = [site.url("status/404/a.png"), site.url("page/b.png")]
    good = [site.url("picture/1.png"), site.url("picture/2.png")]
    done = await caller.finished(await caller.ask(url=[bad[0], good[0], bad[1], good[1]]))
    assert [asset["name"] for asset in done["all"]["assets"]] == good
    assert len(done["all"]["errors"]) == 2
    assert all(any(url in error for error in done["all"]["errors"]) for url in bad)
    assert (done["credits_paid"], done["credits"]) == (2, 998)


async def test_a_single_failure_costs_nothing(caller, site):
    """One image that is not there: an error, no asset, nothing paid."""
    body = (await caller.ask(url=site.url("status/404/a.png"))).body
    assert (body["all"]["assets"], body["credits_paid"], body["credits"]) == ([], 0, 1000)
    assert site.url("status/404/a.png") in body["all"]["errors"][0]


@pytest.mark.parametrize(("rounding", "paid"), [(Rounding.IMAGE, 5), (Rounding.REQUEST, 1)])
async def test_both_roundings(starting, calling, encoded, rounding, paid):
    """Five pictures at 0.2 credits: five credits if each is rounded up, one if the request is."""
    caller = await calling(await starting(rounding=rounding), credits=5)
    done = await caller.finished(await caller.ask(file=[encoded(seed) for seed in range(5)]))
    assert (done["credits_paid"], done["credits"]) == (paid, 5 - paid)


async def test_every_frame_is_rounded_alone_or_the_request_is(starting, calling, site):
    """Three frames at 0.2 credits with the request rounded: one credit."""
    caller = await calling(await starting(rounding=Rounding.REQUEST), credits=1)
    done = await caller.finished(await caller.ask(url=site.url("video/tiny.avi")))
    assert (done["credits_paid"], done["credits"]) == (1, 0)


async def test_the_books_balance(starting, calling, database, site, books):
    """For every account, the ledger says what is free and held at any instant; nothing is held in the end."""
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


async def test_a_key_with_another_body_is_refused(starting, calling, database, encoded):
    """A key names one request: with another picture, or another question, it is 422 and costs nothing."""
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
async def test_a_key_that_is_none_is_refused(caller, encoded, key):
    """An Idempotency-Key is 1 to 255 printable ASCII characters."""
    answered = await caller.ask({"Idempotency-Key": key}, file=encoded())
    assert (answered.status, answered.body["error"]) == (
        400,
        "Idempotency-Key must be 1 to 255 printable ASCII characters.",
    )


async def test_a_key_names_a_request(caller, encoded):
    """The same Idempotency-Key one after another: the same answer, charged once."""
    name = {"Idempotency-Key": "order-1"}
    first = await caller.ask(name, file=encoded(1))
    again = await caller.ask(name, file=encoded(1))
    assert (again.status, again.body) == (first.status, first.body)
    assert await caller.balance() == 999


async def test_a_key_names_a_request_in_flight(caller, site):
    """The same key many times at once: one is done, all get its answer."""
    name = {"Idempotency-Key": "order-2"}
    asked = [asyncio.create_task(caller.ask(name, url=site.url("held/1.png"))) for _ in range(8)]
    await asyncio.to_thread(site.arrived.acquire)
    await asyncio.sleep(0.1)
    site.gate.set()
    answers = await asyncio.gather(*asked)
    assert {answer.body["request_id"] for answer in answers} == {answers[0].body["request_id"]}
    assert all(answer.body["status"] == "completed" and answer.body["all"]["assets"] for answer in answers)
    assert site.seen == ["/held/1.png"]
    assert await caller.balance() == 999


async def test_a_key_names_an_acknowledged_request(caller, encoded):
    """The same key on a batch: the same acknowledgment, charged once."""
    name = {"Idempotency-Key": "order-3"}
    asked = {"file": [encoded(1), encoded(2)]}
    first, second = [await caller.ask(name, **asked) for _ in range(2)]
    assert first.body == second.body
    await caller.finished(first)
    assert (await caller.ask(name, **asked)).body == first.body
    assert await caller.balance() == 998


async def test_a_key_names_a_video_found_by_its_content(caller, site):
    """Asked many times at once, a single URL that turns out to be a video is acknowledged to all, and charged once."""
    name = {"Idempotency-Key": "order-4"}
    answers = await asyncio.gather(*(caller.ask(name, url=site.url("video/untold")) for _ in range(6)))
    assert {answer.body["request_id"] for answer in answers} == {answers[0].body["request_id"]}
    assert all(answer.body["status"] in {"queued", "completed"} for answer in answers)
    for answer in answers:
        if answer.body["status"] == "queued":
            assert (await caller.finished(answer))["credits_paid"] == 3
    assert site.seen == ["/video/untold"]
    assert await caller.balance() == 997


async def test_a_key_belongs_to_its_account(calling, service, encoded):
    """Two accounts may use the same key: each has its own request."""
    callers = [await calling(service, credits=3) for _ in range(2)]
    ids = [(await caller.ask({"Idempotency-Key": "same"}, file=encoded())).body["request_id"] for caller in callers]
    assert ids[0] != ids[1]
    assert [await caller.balance() for caller in callers] == [2, 2]


async def test_a_refused_request_leaves_its_key_free(calling, service, encoded):
    """What was refused for want of credits may be asked again under its key."""
    caller = await calling(service, credits=1)
    name = {"Idempotency-Key": "dear"}
    assert (await caller.ask(name, file=[encoded(1), encoded(2)])).status == 402
    assert (await caller.ask(name, file=encoded(1))).status == 200
