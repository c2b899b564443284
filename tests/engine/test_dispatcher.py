"""Requests are trimmed to the budget and the risk cap, and halved when one row causes a refusal."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

import lightmeter as lm
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.store import open_read_only
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep


def refusing(*numbers, word="refuse"):
    """Return a script that refuses every request with one of these images in it."""
    bad = {f"http://pictures.example/{number}.jpg" for number in numbers}

    def script(_, body):
        urls = [body["url"]] if isinstance(body["url"], str) else body["url"]
        return word if bad.intersection(urls) else "well"

    return script


async def test_a_bad_row_is_found_by_halving(try_out):
    """Only the bad row fails, its neighbors are paid for once, and finding it takes about 2 log2 n requests."""
    refused = []
    behavior = refusing(11)

    def script(number, body):
        word = behavior(number, body)
        refused.extend([body["url"]] if word == "refuse" else [])
        return word

    run, service = await try_out(script, rows=20, batch_size=16, max_concurrency=4)
    counts = run.summary().counts
    assert (counts["ok"], counts["failed"]) == (19, 1)
    assert run.assets.set_index("status")["url"]["failed"].endswith("/11.jpg")
    assert Counter(service.charged).most_common(1)[0][1] == 1
    assert 1 < len(refused) <= 1 + 4, "a batch of at most 16, and then one of each two halves"
    assert run.summary().paid == len(service.charged) == 19


async def test_a_batch_that_failed_for_free_is_halved(try_out):
    """After an answer by polling with `failed` and a charge of zero, the rows are sent again in halves."""
    run, service = await try_out(refusing(2, word="ack and fail for free"), rows=4, batch_size=4)
    counts = run.summary().counts
    assert (counts["ok"], counts["failed"], run.summary().held) == (3, 1, 0)
    assert sorted(service.charged) == sorted(set(service.charged))


async def test_a_batch_that_failed_with_an_unknown_charge_is_not_sent_again(try_out):
    """A failed batch whose answer names no charge may have been charged, so its rows fail."""
    run, service = await try_out(refusing(2, word="ack and fail"), rows=3, batch_size=4)
    assert (run.summary().counts["failed"], service.posts) == (2, 2)


async def test_a_batch_is_trimmed_to_the_risk_cap(try_out):
    """No request holds more credits than the cap, whatever batch size is requested."""
    sizes = []

    def script(_, body):
        sizes.append(1 if isinstance(body["url"], str) else len(body["url"]))
        return "well"

    run, _ = await try_out(script, rows=10, batch_size=10, max_at_risk=3)
    assert run.summary().counts["ok"] == 10
    assert max(sizes) <= 3


async def test_a_batch_whose_price_rises_above_the_risk_cap_is_trimmed(try_out):
    """A batch that waits while its price rises above the cap is sent with fewer rows; the run does not wait forever."""
    service = Hostile(lambda number, _: raise_price(number), answer_s=0.05)

    def raise_price(number):
        service.price = 1 if number < 5 else 3
        return "well"

    async with asyncio.timeout(60):
        run, _ = await try_out(service, rows=40, batch_size=4, max_at_risk=8)
    assert run.summary().counts["ok"] == 40
    assert max(service.images) == 4
    assert max(service.images[-4:]) <= 2, "two pictures cost six credits now, and three nine"


async def test_the_rest_of_a_budget_is_spent_on_a_smaller_batch(try_out):
    """With seven credits and batches of five, seven rows are answered."""
    run, service = await try_out(lambda *_: "well", rows=20, batch_size=5, budget=7)
    assert (len(service.charged), run.summary().paid) == (7, 7)
    assert run.summary().counts["over_budget"] == 13


async def test_a_row_above_the_risk_cap_keeps_its_reason(try_out, monkeypatch):
    """A row that costs more than the cap is not sent, and its reason is `at_risk`."""
    run, service = await try_out(
        lambda *_: "well", rows=3, backends=["claude"], features=["descriptions"], max_at_risk=2
    )
    assert (service.posts, run.summary().counts["over_budget"]) == (0, 3)
    assert {reason.reason for reason in run.reasons()} == {"at_risk"}
    assert "max-at-risk" in str(run.stopped_by)


@pytest.mark.parametrize("sample", ["order", sweep("random")])
async def test_only_rows_without_a_highest_price_are_left_out_of_batches(tmp_path, charges_at_once, sample):
    """With `--max-frames 0` and a budget, URLs that may be videos are not sent; images in the same batches are."""
    urls = [f"http://pictures.example/{number}{'' if number % 10 == 5 else '.jpg'}" for number in range(40)]
    options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 10, "sample": sample}
    service = Hostile(lambda *_: "well")
    async with listening(service) as base_url:
        plan = await lm.aio.plan(urls, base_url=base_url, budget=100, max_frames=0, **options)
        run = await lm.aio.run(plan, tmp_path / "out", consent=True)
    assert sorted(service.charged) == sorted(url for url in urls if url.endswith(".jpg"))
    assert [(one.status, one.reason, one.rows) for one in run.reasons()] == [("over_budget", "no_bound", 4)]
    assert "4 rows" in str(run.stopped_by)
    assert "--max-frames" in run.stopped_by.hint
    assert "--max-at-risk" not in str(run.stopped_by) + run.stopped_by.hint


async def test_each_row_of_a_batch_is_compared_with_the_risk_cap(tmp_path, charges_at_once):
    """Rows that cost more than the cap get the reason `at_risk`, whatever their place in a batch."""
    urls = [f"http://pictures.example/{number}" for number in range(6)]
    options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 3}
    service = Hostile(lambda *_: "well")
    async with listening(service) as base_url:
        plan = await lm.aio.plan([*urls, "http://pictures.example/a.jpg"], base_url=base_url, max_at_risk=2, **options)
        run = await lm.aio.run(plan, tmp_path / "out")
    assert service.charged == ["http://pictures.example/a.jpg"]
    assert [(one.status, one.reason, one.rows) for one in run.reasons()] == [("over_budget", "at_risk", 6)]
    assert "--max-at-risk" in run.stopped_by.hint


async def test_the_learned_rate_limit_is_stored_for_the_next_start(tmp_path, monkeypatch):
    """A learned limit is stored in the journal and in the shared state, and the API key is in neither."""
    turns = Counter()

    def script(_, body):
        turns["posts"] += 1
        return "throttle" if turns["posts"] % 3 == 0 else "well"

    monkeypatch.setenv("LIGHTMETER_API_KEY", "very-secret-key")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    async with listening(Hostile(script)) as base_url:
        urls = [f"http://pictures.example/{number}.jpg" for number in range(6)]
        plan = await lm.aio.plan(urls, features=["tags"], backends=["clarifai"], precheck=False, base_url=base_url)
        run = await lm.aio.run(plan, tmp_path / "out")
    assert run.summary().counts["ok"] == 6
    with open_read_only(run.folder) as db:
        stored = json.loads(get_meta(db)["pace"])
    assert stored["base_url"] == base_url
    assert stored["state"].get("rate", 0) > 0 or stored["state"].get("cap", 0) >= 1
    (last,) = (tmp_path / "state").rglob("last.json")
    assert json.loads(last.read_bytes())["state"] == stored["state"]
    assert "very-secret-key" not in last.read_text() + str(last)


@pytest.mark.parametrize("size", [sweep(1), 3])
async def test_a_finished_run_holds_no_credits(try_out, size):
    """With any batch size, every row is paid for once and no credits stay held."""
    run, service = await try_out(lambda n, _: "throttle" if n % 4 == 0 else "well", rows=12, batch_size=size)
    summary = run.summary()
    assert (summary.counts["ok"], summary.paid, summary.held) == (12, 12, 0)
    assert sorted(service.charged) == sorted(set(service.charged))
