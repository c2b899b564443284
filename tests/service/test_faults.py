"""Injected faults do what their settings say, and the ledger stays correct."""

from __future__ import annotations

import asyncio
import time
from email.utils import parsedate_to_datetime

import aiohttp
import pytest

from lightmeter.clock import SystemClock
from lightmeter.service.faults.config import Faults

UNDONE = "Request ID {} not found."


@pytest.fixture
def faulty(starting, calling):
    """Start a service with faults, and return it with a client."""

    async def begin(faults, credits=1000):  # noqa: A002 (as it reads in the tests)
        service = await starting(faults=Faults.parse(faults))
        return service, await calling(service, credits)

    return begin


async def attempts(caller, count, encoded, **headers):
    """Send pictures one after another; return each answer, or None if the connection was closed."""
    found = []
    for seed in range(count):
        try:
            found.append(await caller.ask(headers, file=encoded(seed)))
        except aiohttp.ClientError:
            found.append(None)
    return found


async def test_a_hidden_bucket_rejects_and_charges_nothing(faulty, encoded):
    """After the burst, requests get 429 without a header or a charge; polls and GET /api/credits are not limited."""
    service, caller = await faulty({"429": {"bucket": 0.01, "burst": 3}})
    answers = await attempts(caller, 6, encoded)
    assert [answer.status for answer in answers] == [200] * 3 + [429] * 3
    assert answers[-1].body == {"error": "Too many requests.", "status": "failed"}
    assert "Retry-After" not in answers[-1].headers
    assert await caller.balance() == 997
    assert service.fault_counts == {"429": 3}


@pytest.mark.parametrize(("retry_after", "most"), [("yes", 100), (7, 7)])
async def test_a_limit_says_when_to_come_again(faulty, encoded, retry_after, most):
    """Retry-After has the remaining or the configured seconds."""
    _, caller = await faulty({"429": {"window": [1, 100], "retry-after": retry_after}})
    rejected = (await attempts(caller, 2, encoded))[1]
    assert most - 5 <= int(rejected.headers["Retry-After"]) <= most


async def test_a_limit_says_it_as_a_date(faulty, encoded):
    """Retry-After can be an HTTP date."""
    _, caller = await faulty({"429": {"window": [1, 100], "retry-after": "date", "status": 503}})
    rejected = (await attempts(caller, 2, encoded))[1]
    assert rejected.status == 503
    assert 90 <= parsedate_to_datetime(rejected.headers["Retry-After"]).timestamp() - time.time() <= 101


async def test_each_key_has_a_limit_of_its_own(faulty, calling, encoded):
    """Each key has its own limit."""
    service, first = await faulty({"429": {"window": [1, 100]}})
    second = await calling(service)
    assert [each.status for each in await attempts(first, 2, encoded)] == [200, 429]
    assert [each.status for each in await attempts(second, 2, encoded)] == [200, 429]


async def test_a_cap_counts_what_is_in_hand(faulty, site):
    """With a cap of two, a third concurrent request is rejected until another ends."""
    _, caller = await faulty({"429": {"cap": 2}})
    blocked_requests = [asyncio.create_task(caller.ask(url=site.url(f"held/{seed}.png"))) for seed in range(2)]
    for _ in blocked_requests:
        assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
    assert (await caller.ask(url=site.url("picture/3.png"))).status == 429
    site.gate.set()
    assert {(await each).status for each in blocked_requests} == {200}
    assert (await caller.ask(url=site.url("picture/4.png"))).status == 200


async def test_dropped_before_is_not_charged_and_dropped_after_is(faulty, portal, encoded):
    """Both faults close the connection; only drop-after charges."""
    for name, balance in (("drop-before", 1000), ("drop-after", 995)):
        service, caller = await faulty({name: 1})
        assert await attempts(caller, 5, encoded) == [None] * 5
        assert (await caller.balance(), service.fault_counts) == (balance, {name: 5})
        await portal.call(service.close())


async def test_a_dropped_answer_is_there_under_its_key(faulty, portal, encoded):
    """A repeated request with its Idempotency-Key is not charged again, unless the fault ignores the key."""
    for more, left in (({}, 9), ({"forgetful": True}, 8)):
        service, caller = await faulty({"drop-after": 0.5, "seed": 3, **more}, credits=10)
        answers = [(await attempts(caller, 1, encoded, **{"Idempotency-Key": "mine"}))[0] for _ in range(2)]
        assert [answer is None for answer in answers] == [True, False]
        assert answers[1].body["credits"] == await caller.balance() == left
        await portal.call(service.close())


@pytest.mark.parametrize(("when", "left"), [("before", 10), ("after", 9)])
async def test_errors_come_before_or_after_the_charge(faulty, encoded, when, left):
    """An error is an HTML page, before or after the charge."""
    service, caller = await faulty({"5xx": {"chance": 1, "status": 504, "when": when}}, credits=10)
    async with caller.session.post(
        f"{service.base_url}/api/fetch", json={"file": encoded()}, headers=caller.headers
    ) as got:
        assert (got.status, got.content_type) == (504, "text/html")
    assert await caller.balance() == left


async def test_a_seed_repeats_the_faults(faulty, portal, encoded):
    """The same seed gives the same faults to the same requests, at about the configured rate."""
    fates = []
    for more in ({"seed": 5}, {"seed": 5, "slow": 0}, {"seed": 6}):
        service, caller = await faulty({"drop-after": 0.3, **more})
        fates.append([answer is None for answer in await attempts(caller, 30, encoded)])
        await portal.call(service.close())
    assert fates[0] == fates[1] != fates[2]
    assert 3 <= sum(fates[0]) <= 16


async def test_a_truncated_answer_ends_half_way(faulty, encoded):
    """A truncated answer is shorter than its Content-Length, and is charged."""
    service, caller = await faulty({"truncate": {"chance": 1, "on": "submit"}}, credits=10)
    async with caller.session.post(
        f"{service.base_url}/api/fetch", json={"file": encoded()}, headers=caller.headers
    ) as got:
        with pytest.raises(aiohttp.ClientPayloadError):
            await got.read()
    assert await caller.balance() == 9


async def test_late_results_are_processing_until_they_are_due(faulty, encoded):
    """Polls say processing until the delay is over."""
    _, caller = await faulty({"late": 0.5}, credits=10)
    acknowledged = await caller.ask(file=[encoded(1), encoded(2)])
    begun = time.monotonic()
    answers = []
    while (polled := (await caller.poll(acknowledged.body["request_id"])).body)["status"] == "processing":
        assert not {"all", "credits", "credits_paid"} & set(polled)
        answers.append(polled)
        await asyncio.sleep(0.02)
    assert polled["status"] == "completed"
    assert answers
    assert time.monotonic() - begun >= 0.4


async def test_ids_are_unknown_for_a_while(faulty, encoded):
    """Polls get the documented 404 for a while, then the result."""
    _, caller = await faulty({"unknown": 0.3})
    acknowledged = await caller.ask(file=[encoded(1), encoded(2)])
    name = acknowledged.body["request_id"]
    early = await caller.poll(name)
    assert (early.status, early.body["error"]) == (404, UNDONE.format(name))
    await asyncio.sleep(0.3)
    assert (await caller.finished(acknowledged))["credits_paid"] == 2


async def test_assets_are_shuffled_under_temporary_names(faulty, encoded):
    """Shuffled assets are the same in each poll, complete and charged."""
    _, caller = await faulty({"shuffle": True, "seed": 2})
    acknowledged = await caller.ask(file=[encoded(seed) for seed in range(8)])
    done = await caller.finished(acknowledged)
    names = [asset["name"] for asset in done["all"]["assets"]]
    assert len(set(names)) == done["credits_paid"] == 8
    assert all(name.startswith("/tmp/uploads/") and name.endswith(".png") for name in names)  # noqa: S108 (as answered)
    assert (await caller.poll(done["request_id"])).body == done


async def test_assets_are_shuffled_under_their_own_names(faulty, encoded):
    """With names=keep only the order changes."""
    _, caller = await faulty({"shuffle": {"names": "keep"}, "seed": 2})
    file_names = [f"{seed}.png" for seed in range(8)]
    done = await caller.finished(await caller.ask(file=[encoded(seed) for seed in range(8)], file_name=file_names))
    names = [asset["name"] for asset in done["all"]["assets"]]
    assert (sorted(names), names != file_names) == (file_names, True)


async def test_missing_assets_are_charged(faulty, encoded):
    """Missing assets are charged, and no message mentions them."""
    _, caller = await faulty({"missing": 0.5, "seed": 4})
    done = await caller.finished(await caller.ask(file=[encoded(seed) for seed in range(20)]))
    assert 0 < len(done["all"]["assets"]) < 20
    assert (done["credits_paid"], done["all"]["errors"]) == (20, [])


async def test_a_charged_job_fails_without_credits_paid(faulty, encoded):
    """A charged job fails in every poll, without credits_paid; the balance shows the charge."""
    _, caller = await faulty({"fail-charged": 1}, credits=10)
    acknowledged = await caller.ask(file=[encoded(1), encoded(2)])
    assert await caller.balance() == 8
    done = await caller.finished(acknowledged)
    assert (done["status"], done["error"]) == ("failed", "Request failed: the job broke.")
    assert not {"all", "credits", "credits_paid"} & set(done)
    assert (await caller.poll(done["request_id"])).body == done
    assert await caller.balance() == 8
    assert (await caller.ask(file=encoded())).body["status"] == "completed"


async def test_an_answer_at_once_may_fail_after_its_charge_too(faulty, encoded):
    """With `on` submit, a synchronous answer fails after its charge."""
    _, caller = await faulty({"fail-charged": {"chance": 1, "on": "submit"}}, credits=10)
    answered = await caller.ask(file=encoded())
    assert (answered.status, answered.body["status"], "credits_paid" in answered.body) == (200, "failed", False)
    assert await caller.balance() == 9


async def test_prices_are_those_of_the_table_times_a_factor(faulty, encoded):
    """The factor applies to reserved credits and charges; GET /api/backends shows the unchanged prices."""
    _, caller = await faulty({"prices": 7.5}, credits=20)  # 0.2 x 7.5 = 1.5, rounded up for each picture
    answered = await caller.ask(file=encoded())
    assert (answered.body["credits_paid"], answered.body["credits"], await caller.balance()) == (2, 18, 18)
    done = await caller.finished(await caller.ask(file=[encoded(1), encoded(2), encoded(3)]))
    assert (done["credits_paid"], done["credits"], await caller.balance()) == (6, 12, 12)
    refused = await caller.ask(file=[encoded(seed) for seed in range(7)])
    assert (refused.status, refused.body["error"]) == (402, "Insufficient credits.")
    offer = (await caller.send("GET", "/api/backends")).body["backends"][0]
    assert offer["features"] == {"colors": 0.2}


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("nan", b'"score":NaN'),
        ("infinity", b'"score":-Infinity'),
        ("digits", b"9" * 400),
        ("surrogate", rb"\ud800"),
        ("byte", b"\xff"),
        ("duplicate", b'{"credits_paid":0,'),
        ("bom", b"\xef\xbb\xbf{"),
        ("trailing", b"}<!-- odd -->"),
    ],
)
async def test_malformed_values_are_in_results_only(faulty, encoded, kind, part):
    """A malformed value is in each result; answers with only a request id, and balances, stay valid."""
    _, caller = await faulty({"odd-value": {"chance": 1, "kind": kind}}, credits=10)

    async def read(method, path, **more):
        async with caller.session.request(method, caller.base_url + path, headers=caller.headers, **more) as got:
            assert got.status == 200
            return await got.read()

    assert (await read("POST", "/api/fetch", json={"file": encoded()})).count(part) == 1
    acknowledged = await caller.ask(file=[encoded(1), encoded(2)])
    path = f"/api/response/{acknowledged.body['request_id']}"
    while b'"all"' not in (polled := await read("GET", path)):  # noqa: ASYNC110 (over HTTP there is no event)
        await asyncio.sleep(0.02)
    assert polled.count(part) == 1
    assert await caller.balance() == 7


async def test_odd_values_are_drawn_by_chance(faulty, encoded):
    """Without a kind, answers are malformed in different ways."""
    service, caller = await faulty({"odd-value": 1, "seed": 4})
    parts_found = set()
    for seed in range(24):
        body = {"file": encoded(seed)}
        async with caller.session.post(f"{caller.base_url}/api/fetch", json=body, headers=caller.headers) as got:
            text = await got.read()
        parts = (b"NaN", b"Infinity", b"999999", b"ud800", b"\xff", b'"credits_paid":0', b"\xef\xbb\xbf", b"<!--")
        parts_found |= {part for part in parts if part in text}
    assert len(parts_found) >= 4
    assert service.fault_counts == {"odd-value": 24}


@pytest.mark.parametrize("names", ["redirect", "none"])
async def test_assets_cannot_be_matched_by_name(faulty, encoded, names):
    """Assets have other URLs or no names, and are complete and charged."""
    _, caller = await faulty({"shuffle": {"names": names}, "seed": 2})
    file_names = [f"{seed}.png" for seed in range(8)]
    done = await caller.finished(await caller.ask(file=[encoded(seed) for seed in range(8)], file_name=file_names))
    answered = [asset.get("name") for asset in done["all"]["assets"]]
    assert (len(answered), done["credits_paid"]) == (8, 8)
    if names == "none":
        assert answered == [None] * 8
    else:
        assert len(set(answered)) == 8
        assert all(name.startswith("https://") and not name.endswith(tuple(file_names)) for name in answered)
    single = (await caller.ask(file=encoded(), file_name="a.png")).body["all"]["assets"]
    assert [asset.get("name") for asset in single] != ["a.png"]


async def test_one_asset_is_extra_and_one_missing(faulty, encoded):
    """An extra and a missing asset leave the number of assets unchanged."""
    _, caller = await faulty({"extra": 1, "missing": 0.125, "seed": 4})
    file_names = [f"{seed}.png" for seed in range(8)]
    done = await caller.finished(await caller.ask(file=[encoded(seed) for seed in range(8)], file_name=file_names))
    answered = [asset["name"] for asset in done["all"]["assets"]]
    assert len(set(answered) - set(file_names)) == 1
    assert done["credits_paid"] == 8


async def test_assets_come_as_an_object(faulty, encoded):
    """Assets are an object keyed by name."""
    _, caller = await faulty({"assets-object": True})
    assets = (await caller.ask(file=encoded(), file_name="a.png")).body["all"]["assets"]
    assert list(assets) == ["a.png"]
    assert assets["a.png"]["colors"]


async def test_credits_are_text_or_absent(faulty, portal, encoded):
    """Credits are strings or absent in answers; the balance stays a number."""
    for fault, money in (("text-credits", ("1", "9")), ("no-credits", (None, None))):
        service, caller = await faulty({fault: True}, credits=10)
        body = (await caller.ask(file=encoded())).body
        assert (body.get("credits_paid"), body.get("credits")) == money
        assert await caller.balance() == 9
        await portal.call(service.close())


class LaterClock(SystemClock):
    """The system clock, with an offset that a test sets."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


async def test_a_balance_shows_a_charge_later(starting, calling, encoded):
    """The balance shows the charge only after the delay."""
    clock = LaterClock()
    service = await starting(faults=Faults.parse({"charge-late": 300}), clock=clock)
    caller, other = await calling(service, 10), await calling(service, 10)
    body = (await caller.ask(file=encoded())).body
    assert (body["credits_paid"], body["credits"], await caller.balance()) == (1, 10, 10)
    assert await other.balance() == 10
    clock.ahead_s = 301
    assert await caller.balance() == 9
    assert (await caller.ask(file=encoded())).body["credits"] == 9


async def test_a_queue_rejects_no_request(faulty, encoded):
    """Concurrent requests are all answered, at the rate of the queue."""
    _, caller = await faulty({"queue": 20})
    begun = time.monotonic()
    answers = await asyncio.gather(*(caller.ask(file=encoded(seed)) for seed in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert time.monotonic() - begun >= 0.4


async def test_probes_have_no_faults(faulty, session):
    """/healthz, /readyz, /metrics and the page at / have no faults."""
    service, _ = await faulty({"drop-before": {"chance": 1, "on": "all"}, "slow": 3600})
    for path in ("healthz", "readyz", "metrics", "openapi.json", ""):
        async with session.get(f"{service.base_url}/{path}") as answer:
            assert answer.status == 200


async def test_a_service_with_faults_logs_a_warning(starting, caplog):
    """A service with faults logs a warning with their settings; another one does not."""
    await starting(faults=Faults.parse({"drop-after": 0.1, "seed": 7}))
    assert "FAULTS ARE ON" in caplog.text
    assert '{"drop-after": 0.1, "seed": 7}' in caplog.text
    caplog.clear()
