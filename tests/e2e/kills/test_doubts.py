"""Lost answers: requests proven unpaid are sent again, all others only with the user's `--pay-again`."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.e2e.kills import run_checks
from tests.e2e.kills.scenario import POLLED, SYNCHRONOUS, kill_repeatedly
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

BATCH_OPTIONS = pytest.mark.parametrize("batch_option", [SYNCHRONOUS, POLLED], ids=["at once", "polled"])
POLLED_DAILY = pytest.mark.parametrize(
    "batch_option",
    [sweep(SYNCHRONOUS, name="at once"), pytest.param(POLLED, id="polled")],
)
"""Answers at once are the sweep: test_kills.py kills such runs each day."""
ALL_FAULTS = {
    "charge_drop": 0.08,
    "drop_charge": 0.08,
    "drop_before": 0.08,
    "truncated": 0.05,
    "500_before": 0.05,
    "500_charged": 0.05,
    "502_charged": 0.03,
    "garbage": 0.03,
    "429": 0.03,
    "429_wait": 0.03,
    "503_wait": 0.03,
}


def count_rows(result) -> dict[str, int]:
    """Return the number of rows of each status that has any."""
    return {status: result.json[status] for status in run_checks.STATUSES if result.json[status]}


@pytest.mark.sweep  # daily: tests/engine/test_hostile.py
@BATCH_OPTIONS
def test_what_is_proven_unpaid_is_sent_again(factory, batch_option):
    """If the balance did not change, the rows of lost requests are sent again, and each is paid once."""
    scenario = factory.create(*batch_option, script=["drop_before", "500_before", "ok", "drop_before"])
    result = scenario.run()
    snapshot, lost = scenario.check(result)
    assert (result.code, lost, snapshot.held) == (0, 0, 0), result.err
    assert sum(events.count("prove_unpaid") for events in snapshot.events.values()) == 3
    assert set(run_checks.charge_counts(scenario.ledger()).values()) == {1}


@pytest.mark.sweep
@BATCH_OPTIONS
@pytest.mark.parametrize("fault", ["charge_drop", "drop_charge", "truncated", "500_charged", "502_charged", "garbage"])
def test_what_was_charged_is_never_sent_again_by_itself(factory, batch_option, fault):
    """A request that was charged and lost its answer is never sent again, also if the charge came late."""
    scenario = factory.create(*batch_option, script=["ok", fault])
    result = scenario.run()
    snapshot, lost = scenario.check(result)
    batch = min(2, int(batch_option[1]))  # after a single image, a batch of two is tried before larger ones
    assert (result.code, count_rows(result)) == (1, {"ok": 12 - batch, "in_doubt": batch})
    assert lost == snapshot.held == batch
    posts = scenario.ledger()["posts"]
    again = scenario.run("resume")
    scenario.check(again)
    assert (again.code, scenario.ledger()["posts"]) == (1, posts)


@pytest.mark.sweep  # daily: tests/engine/test_reconciler.py and test_nights.py
def test_a_person_may_pay_again(factory):
    """`--pay-again 2` sends two of three lost rows again, and their first price stays counted."""
    scenario = factory.create(script=["charge_drop", "charge_drop", "charge_drop"])
    assert count_rows(scenario.run()) == {"ok": 9, "in_doubt": 3}
    result = scenario.run("resume", "--pay-again", 2)
    snapshot, _ = scenario.check(result)
    assert count_rows(result) == {"ok": 11, "in_doubt": 1}
    assert (snapshot.paid, snapshot.held, run_checks.credits_charged(scenario.ledger())) == (11, 3, 14)
    posts = scenario.ledger()["posts"]
    scenario.check(scenario.run("resume"))
    assert scenario.ledger()["posts"] == posts


def test_paying_again_keeps_to_the_cap(factory):
    """`--pay-again` never exceeds the budget: both charges of a row count."""
    scenario = factory.create("--budget", 13, script=["charge_drop", "charge_drop", "charge_drop"])
    assert count_rows(scenario.run()) == {"ok": 9, "in_doubt": 3}
    result = scenario.run("resume", "--pay-again", 3)
    scenario.check(result)
    assert result.code == 3
    assert run_checks.credits_charged(scenario.ledger()) <= 13


@pytest.mark.sweep  # daily: tests/engine/test_reconciler.py and test_waiting.py
def test_the_only_spender_learns_what_was_charged(factory):
    """With `--sole-spender` the balance also proves which lost requests were charged."""
    scenario = factory.create("--sole-spender", script=["charge_drop", "drop_before", "charge_drop"])
    result = scenario.run()
    snapshot, lost = scenario.check(result)
    held = Counter(state for state, *_ in snapshot.submissions.values())
    assert lost == 2
    assert result.code == 1
    assert held["settled"] >= 9
    assert run_checks.credits_charged(scenario.ledger()) == 11 + (result.json["ok"] == 10)


@pytest.mark.parametrize("moved", [sweep(-5), 100])
def test_others_and_purchases_prove_nothing(factory, moved):
    """If others spend or buy credits, lost requests are never proven unpaid."""
    scenario = factory.create("--max-concurrency", 1, latency_s=0.1, script=["ok", "charge_drop", "drop_before"])
    running = scenario.start()
    while len(scenario.ledger()["posts"]) < 5:
        time.sleep(0.01)
    factory.service.change_balance(scenario.key, moved)
    result = running.wait()
    scenario.check(result)
    assert (result.code, count_rows(result)) == (1, {"ok": 10, "in_doubt": 2})
    assert len(scenario.ledger()["posts"]) == 12


@POLLED_DAILY
def test_killed_again_and_again_while_answers_are_lost(factory, batch_option):
    """A run that is killed repeatedly, against a service with all faults, stays correct."""
    random_numbers = random.Random(f"{batch_option}")  # noqa: S311 (instants, not secrets)
    longest_s, kills = 1.0, 0
    while not kills:
        kills += kill_repeatedly(factory, random_numbers, longest_s, *batch_option, faults=ALL_FAULTS, seed=5)
        longest_s *= 0.6  # on a quick machine the run ends before that
