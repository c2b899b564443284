"""kill -9, at random instants and at every kind of step: nothing paid is lost, nothing is paid twice.

`make bench BENCH=tests/bench/toolkit_kills` does the same at ten times as many instants.
"""

from __future__ import annotations

import random

import pytest

from tests.e2e.kills.harness import Fault
from tests.e2e.kills.story import AT_ONCE, POLLED, STEPS, calls_of, killed_again_and_again, killed_at, seconds_of

pytestmark = pytest.mark.slow

KILLS = {"fdatasync": 6, "pwrite64": 4, "sendto": 4, "recvfrom": 4, "connect": 1, "rename": 2}
"""At so many places of each kind, on each of the two ways."""

WAYS = pytest.mark.parametrize("way", [AT_ONCE, POLLED], ids=["at once", "polled"])


def spread(calls: int, kills: int) -> list[int]:
    """So many places, evenly from the first call on."""
    return sorted({1 + (calls - 1) * number // kills for number in range(kills)})


@WAYS
@pytest.mark.parametrize("call", STEPS)
def test_killed_at_a_step(traced, way, call):
    """Before a commit, between pages, before and after words with the service: resumed, every credit is where it was.

    0 answers lost, 0 assets charged twice, at most `--max-at-risk` lost, and a finished run sends nothing more.
    """
    places = spread(calls_of(traced, call, *way), KILLS[call])
    lost = [killed_at(traced, Fault(call, when), *way) for when in places]
    assert lost.count(None) < (len(lost) + 1) // 2  # a thread may be less busy than before


@WAYS
def test_killed_at_random_again_and_again(world, way):
    """Each start is killed at a random instant until one lives; what was written down once stays written down."""
    chance = random.Random(f"{way}")  # noqa: S311 (instants, not secrets)
    longest_s, kills = seconds_of(world, *way), 0
    while kills < 2:
        kills += killed_again_and_again(world, chance, longest_s, *way)
        longest_s *= 0.8  # the machine may be quicker by now
