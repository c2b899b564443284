"""The cap by the counterpart's own books: never passed, and used up when there is work left."""

from __future__ import annotations

import pytest

from tests.e2e.kills import judge
from tests.e2e.kills.story import AT_ONCE

pytestmark = pytest.mark.slow

CENT_AND_A_HALF = 150
"""Millicredits a tag list of `clarifai` costs: how they are rounded is for the service to say."""

CHARGED = {"charge_drop": 0.03, "truncated": 0.03, "500_charged": 0.02, "502_charged": 0.02, "garbage": 0.02}
"""Ways to lose an answer that was paid for."""

TURNED_AWAY = {"429_wait": 0.03, "503_wait": 0.03, "429": 0.01}
UNPAID = {"drop_before": 0.04, "500_before": 0.04}
BATCHES = ("--batch-size", "7")
CAP = 60


def accounted(story, ended) -> tuple[int, int]:
    """Judge a run; returns what the counterpart took, and what the run has paid or holds."""
    memory, _ = story.judged(ended)
    return judge.spent(story.ledger()), memory.paid + memory.held


@pytest.mark.parametrize("way", [AT_ONCE, BATCHES], ids=["at once", "polled"])
@pytest.mark.parametrize("rounding", ["image", "request"])
@pytest.mark.parametrize("faults", [{}, CHARGED, TURNED_AWAY, UNPAID], ids=["calm", "charged", "turned away", "unpaid"])
def test_a_cap_is_used_up_and_never_passed(world, way, rounding, faults):
    """Eight requests at a time, answers lost on the way, prices rounded one way or the other: at most the cap is taken.

    And at least 95 % of it, unless what nobody can prove to be unpaid, or to have been cheap, takes its place.
    """
    rows = 100 if rounding == "image" or way == AT_ONCE else 300
    options = ("--budget", CAP, "--max-concurrency", 8, *way)
    story = world.story(*options, rows=rows, price_milli=CENT_AND_A_HALF, rounding=rounding, faults=faults, seed=3)
    taken, promised = accounted(story, ended := story.run())
    assert ended.code == 3, ended.err
    assert taken <= promised <= CAP
    assert promised >= 0.95 * CAP
    held_too_high = faults == UNPAID or (faults == CHARGED and rounding == "request" and way == BATCHES)
    if not held_too_high:
        assert taken >= 0.95 * CAP


def test_a_raised_cap_is_used_up_too(world):
    """What was lost under the first cap still counts under the second."""
    story = world.story("--budget", 20, rows=60, faults=CHARGED, seed=1)
    assert story.run().code == 3
    ended = story.run("resume", "--budget", 40)
    taken, promised = accounted(story, ended)
    assert ended.code == 3, ended.err
    assert 38 <= taken <= promised <= 40
