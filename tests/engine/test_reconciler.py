"""A run against a service whose answers get lost: it finds out by itself what it can, and asks for the rest."""

from __future__ import annotations

import asyncio

import pytest

import lightmeter as lm
from lightmeter.api.runs import stream_run
from lightmeter.errors import OutcomeUnknown
from lightmeter.journal.balance_proofs import read_proofs
from lightmeter.journal.store import open_read_only
from lightmeter.money.statement import read_statement
from lightmeter.planning.progress import Progress
from tests.engine.hostile import Hostile, listening


def once(*words: str):
    """The first POSTs as listed, all others well."""
    return lambda number, _: words[number - 1] if number <= len(words) else "well"


async def test_alone_on_the_account_what_was_charged_is_known(try_out):
    """The user says that nobody else spends: the lost request is counted as paid, and its row has failed for good."""
    run, service = await try_out(once("well", "charge and drop"), max_concurrency=1, sole_spender=True)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.counts["in_doubt"]) == (5, 1, 0)
    assert (summary.paid, summary.held, len(service.charged)) == (6, 0, 6)
    assert [reason.reason for reason in run.reasons()] == ["paid_and_lost"]
    with open_read_only(run.folder) as db:
        (proof,) = read_proofs(db)
    assert proof["verdicts"][0]["paid"] == proof["missing"] == 1
    assert any("Nobody else spent" in granted for granted in proof["taken_for_granted"])


async def test_of_several_that_were_lost_in_flight_none_is_paid_twice(try_out):
    """Some were charged and some were not, at the same price: nobody can say which, so none is sent again."""
    words = ("well", "drop", "charge and drop", "drop", "charge and drop")
    run, service = await try_out(once(*words), rows=12, max_concurrency=4, sole_spender=True)
    summary = run.summary()
    assert sorted(service.charged) == sorted(set(service.charged))
    assert (summary.counts["ok"], summary.counts["in_doubt"]) == (8, 4)
    assert summary.paid + summary.held >= len(service.charged)


async def test_careful_mode_can_always_tell(try_out):
    """One request in flight, and a look at the balance after each loss: every end is proven."""
    words = ("well", "drop", "charge and drop", "well", "drop", "charge and drop")
    run, service = await try_out(once(*words), rows=12, max_concurrency=4, sole_spender=True, careful=True)
    summary = run.summary()
    assert sorted(service.charged) == sorted(set(service.charged))
    assert (summary.counts["ok"], summary.counts["failed"], summary.counts["in_doubt"]) == (10, 2, 0)
    assert summary.paid == len(service.charged) == 12


async def test_what_is_in_doubt_is_paid_again_only_as_far_as_is_allowed(tmp_path, charges_at_once):
    """The allowance is in credits and 0 by default; what may have been charged stays held beside it."""
    words = ("well", "charge and drop", "drop", "charge and drop")
    service = Hostile(once(*words))
    urls = [f"http://pictures.example/{number}.jpg" for number in range(6)]
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        run = await lm.run(await lm.plan(urls, budget=8, **options), tmp_path / "out")
        assert (run.summary().counts["in_doubt"], run.summary().held) == (2, 2)
        posts = service.posts
        run = await lm.resume(run.folder)
        assert (run.summary().counts["in_doubt"], service.posts) == (2, posts)
        run = await lm.resume(run.folder, pay_again=1)
        assert (run.summary().counts["in_doubt"], run.summary().counts["ok"], service.posts) == (1, 5, posts + 1)
        assert (run.summary().paid, run.summary().held) == (5, 2)
        run = await lm.resume(run.folder, pay_again=2)
        summary = run.summary()
    assert (summary.counts["ok"], summary.paid, summary.held) == (6, 6, 2)
    assert len(service.charged) == 8 == summary.paid + summary.held


async def test_trust_that_is_given_later_decides_what_was_left_in_doubt(tmp_path, charges_at_once):
    """The readings of before prove more once the user says that nobody else spends, with no new request."""
    service = Hostile(once("well", "charge and drop"))
    urls = [f"http://pictures.example/{number}.jpg" for number in range(4)]
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        run = await lm.run(await lm.plan(urls, max_concurrency=1, **options), tmp_path / "out")
        assert (run.summary().counts["in_doubt"], run.summary().held) == (1, 1)
        posts = service.posts
        run = await lm.resume(run.folder, sole_spender=True)
    assert (run.summary().counts["failed"], run.summary().held, run.summary().paid) == (1, 0, 4)
    assert service.posts == posts


async def test_a_service_that_never_answers_is_left_alone_in_the_end(try_out):
    """Every request is lost and proven unpaid, again and again: after some rounds the run stops and says so."""
    run, service = await try_out(lambda *_: "drop", rows=3)
    assert isinstance(run.stopped_by, OutcomeUnknown)
    assert service.charged == []
    assert service.posts <= 12
    assert sum(run.summary().counts[status] for status in ("pending", "in_doubt")) == 3


async def test_what_was_refused_for_being_too_fast_is_checked_at_the_end(try_out):
    """It is sent again at once, because it costs nothing; the balance has the last word, and it is written down."""
    run, service = await try_out(once("well", "throttle"), rows=3, max_concurrency=1)
    with open_read_only(run.folder) as db:
        (proof,) = read_proofs(db)
    assert (proof["missing"], proof["notes"]) == (0, ["1 requests were refused for being too fast, and cost nothing."])
    assert (run.summary().paid, len(service.charged)) == (3, 3)


async def test_balances_of_two_accounts_prove_nothing_together(tmp_path, monkeypatch, charges_at_once):
    """A run that goes on with another key gives up what the first key's account would have had to tell."""
    service = Hostile(once("well", "drop"))
    urls = [f"http://pictures.example/{number}.jpg" for number in range(3)]
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        stop = asyncio.Event()
        async for step in stream_run(await lm.plan(urls, max_concurrency=1, **options), tmp_path / "out", stop=stop):
            if isinstance(step, Progress) and step.phase == "reconciling":
                stop.set()
        monkeypatch.setenv("LIGHTMETER_API_KEY", "another")
        monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
        run = await lm.resume(tmp_path / "out")
    assert (run.summary().counts["in_doubt"], run.summary().counts["ok"]) == (1, 2)
    assert "of this account" in run.reasons()[0].example
    assert any("nothing can be proven" in line for line in read_statement(run.folder).lines())


async def test_what_waits_at_the_service_is_collected_before_anything_is_sent(tmp_path, charges_at_once):
    """A run that is stopped leaves acknowledged requests to the next start, which asks for the oldest first."""
    service = Hostile(lambda *_: "ack", polls_until_done=10**6)
    urls = [f"http://pictures.example/{number}.jpg" for number in range(3)]

    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        stop = asyncio.Event()
        plan = await lm.plan(urls, max_concurrency=1, batch_size=1, **options)
        async for step in stream_run(plan, tmp_path / "out", stop=stop):
            if isinstance(step, Progress) and step.in_flight:
                stop.set()
        posts = service.posts
        assert service.charged == []
        service.polls_until_done = 1
        for job in service.jobs.values():
            job["left"] = 1
        run = await lm.resume(tmp_path / "out")
    assert run.summary().counts["ok"] == 3
    assert service.posts == 3 >= posts
    assert sorted(service.charged) == sorted(urls)


@pytest.mark.parametrize("others", [1, 2, 7])
async def test_while_others_spend_nothing_is_sent_again(try_out, others):
    """The account loses credits that no request of this run took: what was lost stays in doubt, whatever was said."""
    service = Hostile(once("well", "drop"))
    script = service.script

    def spending(number, body):
        if number == 2:
            service.balance -= others
        return script(number, body)

    service.script = spending
    run, _ = await try_out(service, max_concurrency=1)
    assert (run.summary().counts["in_doubt"], run.summary().counts["ok"]) == (1, 5)
    assert sorted(service.charged) == sorted(set(service.charged))
