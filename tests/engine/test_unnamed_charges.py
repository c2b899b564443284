"""Services whose answers name no charge: prices, caps and concurrency."""

from __future__ import annotations

import json
from math import ceil

import pytest
from aiohttp import web

from lightmeter.journal.store import open_read_only
from tests.engine.hostile import Hostile


class Silent(Hostile):
    """A service whose answers name no charge, while another user spends `others_spend` credits with each request."""

    others_spend = 0

    def answer(self, urls, names=None):
        answer = super().answer(urls, names)
        self.balance -= self.others_spend
        return {"all": answer["all"]}


class Patient(Silent):
    """A silent service that completes no request before it has accepted six, or was polled 12 times."""

    most_open = 0

    async def response(self, request):
        if len(self.jobs) < 6 and self.polls < 12:
            self.jobs[request.match_info["request_id"]]["left"] = 2
        self.most_open = max(self.most_open, sum(job["left"] > 0 for job in self.jobs.values()))
        return await super().response(request)


def holds(run):
    """Return the hold of each request, in order."""
    with open_read_only(run.folder) as db:
        return [hold for (hold,) in db.execute("SELECT hold FROM submissions ORDER BY submission_id")]


@pytest.mark.parametrize("word", ["well", "ack"])
@pytest.mark.parametrize("limits", [{}, {"budget": 20}, {"max_at_risk": 20}])
async def test_spending_of_another_user_is_no_price(try_out, word, limits):
    """While another user spends 49 credits, holds stay at the price of the table, and the run ends with all rows."""
    service = Silent(lambda *_: word, balance=10_000, polls_until_done=1)
    service.others_spend = 49
    run, _ = await try_out(service, rows=4, **limits)
    summary = run.summary()
    assert set(holds(run)) == {1}
    assert (summary.paid, summary.held, summary.counts["ok"], run.stopped_by) == (4, 0, 4, None)


async def test_a_sole_spender_learns_the_price_from_the_balance(try_out):
    """If the user says that nobody else spends, the fall of the balance is the price of the first image."""
    run, _ = await try_out(Silent(lambda *_: "well", price=5, balance=10_000), rows=4, budget=30, sole_spender=True)
    assert holds(run) == [1, 5, 5, 5]


async def test_an_unnamed_charge_counts_as_its_hold(try_out):
    """The cap of a run whose answers name no charge limits the sum of the prices by the table."""
    run, service = await try_out(Silent(lambda *_: "well", balance=10_000), rows=20, budget=6)
    assert (service.posts, run.summary().paid, run.exit_code) == (6, 6, 3)


async def test_a_run_without_a_cap_polls_for_many_answers_at_once(try_out):
    """Without a cap no price must be learned first: requests do not wait for the answers of others."""
    service = Patient(lambda *_: "ack", balance=10_000)
    run, _ = await try_out(service, rows=6)
    assert run.summary().counts["ok"] == 6
    assert service.most_open == 6


async def test_batches_wait_for_the_first_names(try_out):
    """If the user wants batches, the first image goes alone, as its answer shows whether names identify images."""
    _, service = await try_out(Silent(lambda *_: "ack", balance=10_000, polls_until_done=1), rows=9, batch_size=4)
    assert service.images[:2] == [1, 2]


class Fractional(Hostile):
    """A service that charges 0.45 credits for an image."""

    def answer(self, urls, names=None):
        answer = super().answer(urls, names)
        return {**answer, "credits_paid": 0.45 * len(urls), "credits": self.balance + 0.55}


async def test_a_fraction_of_credits_is_a_charge(try_out):
    """A charge of 0.45 credits is booked as 1 and shows the price; tables and statement know what was paid."""
    run, service = await try_out(Fractional(lambda *_: "well", answer_s=0.1), rows=12, budget=100, batch_size=1)
    assert (run.summary().paid, run.statement().unreported) == (12, 0)
    assert set(run.assets["credits"]) == {1.0}
    assert service.most_at_once > 1


class OddBalance(Hostile):
    """A service whose balance is odd: it never changes, or changes by less than a credit."""

    odd = None

    async def credits(self, _):
        """GET /api/credits."""
        return web.json_response({"credits": self.odd})


@pytest.mark.parametrize("odd", [2**53, 2**63, 10**30, 99.5])
async def test_an_odd_balance_stops_no_run_and_proves_nothing(try_out, odd):
    """A balance that is a fraction, or that no double holds exactly, is accepted; a lost request stays in doubt."""
    service = OddBalance(lambda number, _: "charge and drop" if number == 2 else "well")
    service.odd = odd
    run, _ = await try_out(service, rows=3, max_concurrency=1)
    counts = run.summary().counts
    assert (counts["ok"], counts["in_doubt"], run.summary().paid, run.summary().held) == (2, 1, 2, 1)
    assert service.posts == 3
    assert json.loads(json.dumps(run.summary().to_dict()))["credits"]["balance_after"] == min(ceil(odd), 2**53 - 1)
