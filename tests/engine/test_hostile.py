"""Whatever a service does, no row is lost or paid for twice, and the journal agrees with the service's charges."""

from __future__ import annotations

import random

import pytest

import lightmeter as lm
from lightmeter.errors import AccessDenied
from lightmeter.journal.balance_proofs import read_proofs
from lightmeter.journal.store import open_read_only


def once(*words: str):
    """Return a script with these words for the first POSTs, and good answers for all others."""
    return lambda number, _: words[number - 1] if number <= len(words) else "well"


async def test_a_throttled_row_is_sent_again_and_paid_once(try_out):
    """A request refused with 429 was not charged: its row is sent again and paid once."""
    run, service = await try_out(once("throttle", "throttle"))
    assert run.summary().counts["ok"] == 6
    assert sorted(service.charged) == sorted(set(service.charged))
    assert run.summary().paid == 6


@pytest.mark.parametrize("word", ["drop", "break"])
async def test_a_lost_request_proven_unpaid_is_sent_again(try_out, word):
    """If the balance did not change, the lost request was not charged, and its row is sent again and paid once."""
    run, service = await try_out(once(word), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.paid, summary.held, run.exit_code) == (6, 6, 0, 0)
    assert (service.posts, len(service.charged)) == (7, 6)
    with open_read_only(run.folder) as db:
        (proof,) = read_proofs(db)
    assert (proof["missing"], proof["verdicts"][0]["done"]) == (0, "prove_unpaid")


async def test_a_request_that_may_have_been_charged_stays_in_doubt(try_out):
    """If the balance fell and others may have spent it, the row stays in doubt and is not sent again, also later."""
    run, service = await try_out(once("charge and drop"), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["in_doubt"]) == (5, 1)
    assert (summary.paid, summary.held, run.exit_code) == (5, 1, 1)
    assert service.posts == 6
    assert "in_doubt" in set(run.assets["status"])
    again, service = await try_out(once(), max_concurrency=1)
    assert (service.posts, again.summary().counts) == (0, summary.counts)


async def test_a_refused_row_fails_and_costs_nothing(try_out):
    """The text of a refusal is the row's error, and the held credits are released."""
    run, service = await try_out(once("refuse"), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.held) == (5, 1, 0)
    assert run.reasons()[0].example.endswith("Invalid URLs detected.")
    assert len(service.charged) == 5


async def test_a_refused_batch_does_not_fail_its_good_rows(try_out):
    """One bad row does not fail its neighbors, and nothing is paid twice to find it."""

    def script(_, body):
        urls = body["url"] if isinstance(body["url"], list) else [body["url"]]
        return "refuse" if any(url.endswith("/3.jpg") for url in urls) else "well"

    run, service = await try_out(script, batch_size=6)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.paid) == (5, 1, 5)
    assert sorted(service.charged) == sorted(set(service.charged))


@pytest.mark.parametrize("word", ["rename", "shuffle"])
async def test_assets_find_their_rows_in_a_batch(try_out, word):
    """Rewritten names and another order of assets do not lose a row."""
    run, _ = await try_out(once(word), batch_size=6)
    assert run.summary().counts["ok"] == 6
    assert len(run.tags) == 6


async def test_a_missing_asset_is_a_failed_row(try_out):
    """A row without an asset fails with a reason, the others keep theirs, and the charge is counted."""
    run, _ = await try_out(once("well", "lose one"), rows=3, max_concurrency=1, batch_size=6)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.paid) == (2, 1, 3)


async def test_acknowledged_requests_are_polled_to_their_end(try_out):
    """A minimal acknowledgment is polled until it ends; `failed` for free is the rows' error."""
    run, service = await try_out(once("ack", "ack and fail"), max_concurrency=1)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["failed"], summary.paid) == (5, 1, 5)
    assert service.polls == 4
    assert run.sql("SELECT sum(polls) AS n FROM requests")["n"][0] == 4
    assert summary.held == 0, "the balance proves that the failed one was not charged"


async def test_a_denied_key_stops_the_run_and_its_rows_stay_pending(try_out):
    """A text that starts with `Access denied` stops the run at any HTTP status, and its rows stay pending."""
    run, service = await try_out(once("deny"), max_concurrency=1)
    assert isinstance(run.stopped_by, AccessDenied)
    assert run.exit_code == 4
    assert run.summary().counts["pending"] == 6
    assert service.charged == []


async def test_a_run_into_the_same_folder_continues(try_out):
    """The second run sends nothing for rows that have an answer."""
    first, _ = await try_out(once())
    second, service = await try_out(once())
    assert second.summary().requests == first.summary().requests == 6
    assert service.posts == 0


async def test_credits_at_risk_are_capped(try_out):
    """Requests without an answer never hold more than `max_at_risk` credits together."""
    run, _ = await try_out(once(), rows=20, max_at_risk=1, max_concurrency=8)
    in_flight = run.sql(
        "SELECT max(n) AS n FROM (SELECT count(*) AS n FROM requests a JOIN requests b "
        "ON a.sent_at >= b.sent_at AND a.sent_at < b.answered_at GROUP BY a.sent_at, a.request_id)"
    )
    assert in_flight["n"][0] == 1


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(6))
async def test_the_journal_agrees_with_the_service_under_random_faults(try_out, seed):
    """Under random faults no URL is charged twice, each row is in one count, and the budget is never exceeded."""
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
