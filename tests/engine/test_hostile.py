"""Whatever a service does, no row is paid for twice, none is lost, and the books agree with the service's own."""

from __future__ import annotations

import random

import pytest

import lightmeter as lm
from lightmeter.errors import AccessDenied
from lightmeter.journal.balance_proofs import read_proofs
from lightmeter.journal.store import open_read_only


def once(*words: str):
    """The first POSTs as listed, all others well."""
    return lambda number, _: words[number - 1] if number <= len(words) else "well"


async def test_a_throttled_row_is_sent_again_and_paid_once(try_out):
    """429 is no charge: the row waits and goes again."""
    run, service = await try_out(once("throttle", "throttle"))
    assert run.summary().counts["ok"] == 6
    assert sorted(service.charged) == sorted(set(service.charged))
    assert run.summary().paid == 6


@pytest.mark.parametrize("word", ["drop", "break"])
async def test_what_the_balance_proves_unpaid_is_sent_again(try_out, word):
    """Nothing is missing from the account: the lost request was not charged, and its row is paid for once."""
    run, service = await try_out(once(word), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.paid, summary.held, run.exit_code) == (6, 6, 0, 0)
    assert (service.posts, len(service.charged)) == (7, 6)
    with open_read_only(run.folder) as db:
        (proof,) = read_proofs(db)
    assert (proof["missing"], proof["verdicts"][0]["done"]) == (0, "prove_unpaid")


async def test_what_may_have_been_charged_is_in_doubt_and_never_sent_again(try_out):
    """Something is missing, and others may have spent it: the row is held, in this run and in the next."""
    run, service = await try_out(once("charge and drop"), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["in_doubt"]) == (5, 1)
    assert (summary.paid, summary.held, run.exit_code) == (5, 1, 1)
    assert service.posts == 6
    assert "in_doubt" in set(run.assets["status"])
    again, service = await try_out(once(), max_concurrency=1)
    assert (service.posts, again.summary().counts) == (0, summary.counts)


async def test_a_refused_row_fails_and_costs_nothing(try_out):
    """A refusal with a text is the row's error, and the hold is released."""
    run, service = await try_out(once("refuse"), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.held) == (5, 1, 0)
    assert run.reasons()[0].example.endswith("Invalid URLs detected.")
    assert len(service.charged) == 5


async def test_a_refused_batch_is_sent_row_by_row(try_out):
    """One bad row does not fail its neighbours, and nothing is paid twice to find it."""

    def script(_, body):
        urls = body["url"] if isinstance(body["url"], list) else [body["url"]]
        return "refuse" if any(url.endswith("/3.jpg") for url in urls) else "well"

    run, service = await try_out(script, batch_size=6)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.paid) == (5, 1, 5)
    assert sorted(service.charged) == sorted(set(service.charged))


@pytest.mark.parametrize("word", ["rename", "shuffle"])
async def test_assets_find_their_rows_in_a_batch(try_out, word):
    """Other names and another order do not lose a row."""
    run, _ = await try_out(once(word), batch_size=6)
    assert run.summary().counts["ok"] == 6
    assert len(run.tags) == 6


async def test_a_missing_asset_is_a_failed_row(try_out):
    """The others keep theirs; the missing one says so, and the money is what was charged."""
    run, _ = await try_out(once("well", "lose one"), rows=3, max_concurrency=1, batch_size=6)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.paid) == (2, 1, 3)


async def test_acknowledged_requests_are_polled_to_their_end(try_out):
    """A minimal acknowledgment is enough; `failed` on a poll is the rows' error and free."""
    run, service = await try_out(once("ack", "ack and fail"), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.paid) == (5, 1, 5)
    assert service.polls == 4
    assert run.sql("SELECT sum(polls) AS n FROM requests")["n"][0] == 4
    assert summary.held == 0, "the balance proves that the failed one was not charged"


async def test_a_denied_key_stops_everything_and_the_rows_wait(try_out):
    """Any text that starts with `Access denied` is fatal, at any HTTP status; the rows are still there."""
    run, service = await try_out(once("deny"), max_concurrency=1)
    assert isinstance(run.stopped_by, AccessDenied)
    assert run.exit_code == 4
    assert run.summary().counts["pending"] == 6
    assert service.charged == []


async def test_a_run_into_the_same_folder_goes_on(try_out):
    """The second run sends nothing for rows that have their answer."""
    first, _ = await try_out(once())
    second, service = await try_out(once())
    assert second.summary().requests == first.summary().requests == 6
    assert service.posts == 0


async def test_credits_at_risk_are_capped(try_out):
    """No more than `max_at_risk` credits are ever in flight without an answer."""
    run, _ = await try_out(once(), rows=20, max_at_risk=1, max_concurrency=8)
    in_flight = run.sql(
        "SELECT max(n) AS n FROM (SELECT count(*) AS n FROM requests a JOIN requests b "
        "ON a.sent_at >= b.sent_at AND a.sent_at < b.answered_at GROUP BY a.sent_at, a.request_id)"
    )
    assert in_flight["n"][0] == 1


@pytest.mark.parametrize("seed", range(6))
async def test_the_books_agree_whatever_happens(try_out, seed):
    """Random misbehaviour: no URL is charged twice, each row stands in one count, and the cap is never passed."""
    chance = random.Random(seed)  # noqa: S311 (a dice, no secret)
    words = ["well"] * 6 + ["throttle", "refuse", "drop", "charge and drop", "break", "ack", "shuffle", "rename"]
    run, service = await try_out(
        lambda *_: chance.choice(words), rows=40, budget=30, batch_size=chance.choice([1, 3]), max_concurrency=4
    )
    summary = run.summary()
    assert sorted(service.charged) == sorted(set(service.charged))
    assert sum(summary.counts.values()) == 40
    assert len(service.charged) <= 30
    assert summary.paid <= len(service.charged) <= summary.paid + summary.held
    assert summary.paid + summary.held <= 30
    assert lm.open(run.folder).summary() == summary
