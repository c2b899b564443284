"""Answers that are lost on the way: what can be proven unpaid is sent again, the rest only if a person pays again."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.e2e.kills import judge
from tests.e2e.kills.story import AT_ONCE, POLLED, killed_again_and_again

pytestmark = pytest.mark.slow

WAYS = pytest.mark.parametrize("way", [AT_ONCE, POLLED], ids=["at once", "polled"])
EVERYTHING = {
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


def counted(ended) -> dict[str, int]:
    """Rows by status, without those that are none."""
    return {status: ended.json[status] for status in judge.STATUSES if ended.json[status]}


@WAYS
def test_what_is_proven_unpaid_is_sent_again(world, way):
    """The balance did not move: nothing was charged, the rows are sent again, all end well, each is paid once."""
    story = world.story(*way, script=["drop_before", "500_before", "ok", "drop_before"])
    ended = story.run()
    memory, lost = story.judged(ended)
    assert (ended.code, lost, memory.held) == (0, 0, 0), ended.err
    assert sum(events.count("prove_unpaid") for events in memory.events.values()) == 3
    assert set(judge.charges(story.ledger()).values()) == {1}


@WAYS
@pytest.mark.parametrize("fault", ["charge_drop", "drop_charge", "truncated", "500_charged", "502_charged", "garbage"])
def test_what_was_charged_is_never_sent_again_by_itself(world, way, fault):
    """However the answer was lost, at once or before a charge that came late: it is in doubt, and stays so."""
    story = world.story(*way, script=["ok", fault])
    ended = story.run()
    memory, lost = story.judged(ended)
    batch = min(2, int(way[1]))  # after a single image, a batch of two is tried before larger ones
    assert (ended.code, counted(ended)) == (1, {"ok": 12 - batch, "in_doubt": batch})
    assert lost == memory.held == batch
    posts = story.ledger()["posts"]
    again = story.run("resume")
    story.judged(again)
    assert (again.code, story.ledger()["posts"]) == (1, posts)


def test_a_person_may_pay_again(world):
    """`--pay-again 2` sends two of three lost rows again, and no more; what they may have cost stays counted."""
    story = world.story(script=["charge_drop", "charge_drop", "charge_drop"])
    assert counted(story.run()) == {"ok": 9, "in_doubt": 3}
    ended = story.run("resume", "--pay-again", 2)
    memory, _ = story.judged(ended)
    assert counted(ended) == {"ok": 11, "in_doubt": 1}
    assert (memory.paid, memory.held, judge.spent(story.ledger())) == (11, 3, 14)
    posts = story.ledger()["posts"]
    story.judged(story.run("resume"))
    assert story.ledger()["posts"] == posts


def test_paying_again_keeps_to_the_cap(world):
    """The allowance never lifts the budget: both charges of a row count."""
    story = world.story("--budget", 13, script=["charge_drop", "charge_drop", "charge_drop"])
    assert counted(story.run()) == {"ok": 9, "in_doubt": 3}
    ended = story.run("resume", "--pay-again", 3)
    story.judged(ended)
    assert ended.code == 3
    assert judge.spent(story.ledger()) <= 13


def test_the_only_spender_learns_what_was_charged(world):
    """Who says that nobody else spends is told which lost requests were charged, as far as it can be known."""
    story = world.story("--sole-spender", script=["charge_drop", "drop_before", "charge_drop"])
    ended = story.run()
    memory, lost = story.judged(ended)
    held = Counter(state for state, *_ in memory.submissions.values())
    assert lost == 2
    assert ended.code == 1
    assert held["settled"] >= 9
    assert judge.spent(story.ledger()) == 11 + (ended.json["ok"] == 10)


@pytest.mark.parametrize("moved", [-5, 100])
def test_others_and_purchases_prove_nothing(world, moved):
    """Credits that go or come behind the run's back make lost requests doubtful, never unpaid."""
    story = world.story("--max-concurrency", 1, latency_s=0.1, script=["ok", "charge_drop", "drop_before"])
    running = story.start()
    while len(story.ledger()["posts"]) < 5:
        time.sleep(0.01)
    world.counterpart.move(story.key, moved)
    ended = running.wait()
    story.judged(ended)
    assert (ended.code, counted(ended)) == (1, {"ok": 10, "in_doubt": 2})
    assert len(story.ledger()["posts"]) == 12


@WAYS
def test_killed_again_and_again_while_answers_are_lost(world, way):
    """Everything at once: a service that loses, charges late, breaks and turns away, and a run that is killed."""
    chance = random.Random(f"{way}")  # noqa: S311 (instants, not secrets)
    longest_s, kills = 1.0, 0
    while not kills:
        kills += killed_again_and_again(world, chance, longest_s, *way, faults=EVERYTHING, seed=5)
        longest_s *= 0.6  # a quick machine is done before that
