"""Lost requests are resolved by the balance as far as it proves something; all others stay in doubt."""

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
from tests.sweeps import sweep


def once(*words: str):
    """Return a script with these words for the first POSTs, and good answers for all others."""
    return lambda number, _: words[number - 1] if number <= len(words) else "well"


async def test_the_sole_spender_learns_what_was_charged(try_out):
    """If nobody else spends, missing credits prove that a lost request was paid, and its row fails."""
    run, service = await try_out(once("well", "charge and drop"), max_concurrency=1, sole_spender=True)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.counts["in_doubt"]) == (5, 1, 0)
    assert (summary.paid, summary.held, len(service.charged)) == (6, 0, 6)
    assert [reason.reason for reason in run.reasons()] == ["paid_and_lost"]
    with open_read_only(run.folder) as db:
        (proof,) = read_proofs(db)
    assert proof["verdicts"][0]["paid"] == proof["missing"] == 1
    assert any("Nobody else spent" in granted for granted in proof["taken_for_granted"])


async def test_lost_requests_that_cannot_be_told_apart_are_not_sent_again(try_out):
    """If some of several lost requests at one price were charged, none is sent again."""
    words = ("well", "drop", "charge and drop", "drop", "charge and drop")
    run, service = await try_out(once(*words), rows=12, max_concurrency=4, sole_spender=True)
    summary = run.summary()
    assert sorted(service.charged) == sorted(set(service.charged))
    assert (summary.counts["ok"], summary.counts["in_doubt"]) == (8, 4)
    assert summary.paid + summary.held >= len(service.charged)


async def test_careful_mode_resolves_every_lost_request(try_out):
    """With one request in flight and a balance reading after each loss, every outcome is proven."""
    words = ("well", "drop", "charge and drop", "well", "drop", "charge and drop")
    run, service = await try_out(once(*words), rows=12, max_concurrency=4, sole_spender=True, careful=True)
    summary = run.summary()
    assert sorted(service.charged) == sorted(set(service.charged))
    assert (summary.counts["ok"], summary.counts["failed"], summary.counts["in_doubt"]) == (10, 2, 0)
    assert summary.paid == len(service.charged) == 12


async def test_rows_in_doubt_are_paid_again_only_within_the_allowance(tmp_path, charges_at_once):
    """`pay_again` limits the credits for sending rows in doubt again; the first price stays held."""
    words = ("well", "charge and drop", "drop", "charge and drop")
    service = Hostile(once(*words))
    urls = [f"http://pictures.example/{number}.jpg" for number in range(6)]
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        run = await lm.aio.run(await lm.aio.plan(urls, budget=8, **options), tmp_path / "out")
        assert (run.summary().counts["in_doubt"], run.summary().held) == (2, 2)
        posts = service.posts
        run = await lm.aio.resume(run.folder)
        assert (run.summary().counts["in_doubt"], service.posts) == (2, posts)
        run = await lm.aio.resume(run.folder, pay_again=1)
        assert (run.summary().counts["in_doubt"], run.summary().counts["ok"], service.posts) == (1, 5, posts + 1)
        assert (run.summary().paid, run.summary().held) == (5, 2)
        run = await lm.aio.resume(run.folder, pay_again=2)
        summary = run.summary()
    assert (summary.counts["ok"], summary.paid, summary.held) == (6, 6, 2)
    assert len(service.charged) == 8 == summary.paid + summary.held


async def test_sole_spender_on_resume_resolves_earlier_doubts(tmp_path, charges_at_once):
    """Stored balance readings prove more once the user says that nobody else spends, without a new request."""
    service = Hostile(once("well", "charge and drop"))
    urls = [f"http://pictures.example/{number}.jpg" for number in range(4)]
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        run = await lm.aio.run(await lm.aio.plan(urls, max_concurrency=1, **options), tmp_path / "out")
        assert (run.summary().counts["in_doubt"], run.summary().held) == (1, 1)
        posts = service.posts
        run = await lm.aio.resume(run.folder, sole_spender=True)
    assert (run.summary().counts["failed"], run.summary().held, run.summary().paid) == (1, 0, 4)
    assert service.posts == posts


async def test_a_run_stops_if_the_service_never_answers(try_out):
    """If every request is lost and proven unpaid, the run stops after some rounds with a reason."""
    run, service = await try_out(lambda *_: "drop", rows=3)
    assert isinstance(run.stopped_by, OutcomeUnknown)
    assert service.charged == []
    assert service.posts <= 12
    assert sum(run.summary().counts[status] for status in ("pending", "in_doubt")) == 3


async def test_throttled_requests_are_checked_against_the_balance(try_out):
    """A throttled request is sent again at once, and a proof from the balance is recorded at the end."""
    run, service = await try_out(once("well", "throttle"), rows=3, max_concurrency=1)
    with open_read_only(run.folder) as db:
        (proof,) = read_proofs(db)
    assert (proof["missing"], proof["notes"]) == (0, ["1 requests were refused for being too fast, and cost nothing."])
    assert (run.summary().paid, len(service.charged)) == (3, 3)


async def test_balances_of_two_accounts_prove_nothing_together(tmp_path, monkeypatch, charges_at_once):
    """A run that resumes with another key leaves earlier lost requests in doubt."""
    service = Hostile(once("well", "drop"))
    urls = [f"http://pictures.example/{number}.jpg" for number in range(3)]
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "600")
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        stop = asyncio.Event()
        async for step in stream_run(
            await lm.aio.plan(urls, max_concurrency=1, **options), tmp_path / "out", stop=stop
        ):
            if isinstance(step, Progress) and step.phase == "reconciling":
                stop.set()
        monkeypatch.setenv("LIGHTMETER_API_KEY", "another")
        monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
        run = await lm.aio.resume(tmp_path / "out")
    assert (run.summary().counts["in_doubt"], run.summary().counts["ok"]) == (1, 2)
    assert "of this account" in run.reasons()[0].example
    assert any("nothing can be proven" in line for line in read_statement(run.folder).lines())


async def test_acknowledged_answers_are_collected_before_anything_is_sent(tmp_path, charges_at_once):
    """A stopped run leaves acknowledged requests to the next start, which collects them first."""
    service = Hostile(lambda *_: "ack", polls_until_done=10**6)
    urls = [f"http://pictures.example/{number}.jpg" for number in range(3)]

    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        stop = asyncio.Event()
        plan = await lm.aio.plan(urls, max_concurrency=1, batch_size=1, **options)
        async for step in stream_run(plan, tmp_path / "out", stop=stop):
            if isinstance(step, Progress) and step.in_flight:
                stop.set()
        posts = service.posts
        assert service.charged == []
        service.polls_until_done = 1
        for job in service.jobs.values():
            job["left"] = 1
        run = await lm.aio.resume(tmp_path / "out")
    assert run.summary().counts["ok"] == 3
    assert service.posts == 3 >= posts
    assert sorted(service.charged) == sorted(urls)


@pytest.mark.parametrize("others", [1, *map(sweep, (2, 7))])
async def test_lost_requests_stay_in_doubt_while_others_spend(try_out, others):
    """If others spend from the account, a lost request stays in doubt and is not sent again."""
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
