"""Compares goodput and rejections of controllers under hidden limits; only the toolkit's own limiter has goals.

Run with `make bench`; some minutes on two cores. The bucket without any burst has no goal: network jitter alone
overdraws it, so that not even a controller that knows the limit reaches 95 % with 1 % rejected (see its figures).
"""

from __future__ import annotations

import sys
from itertools import product

import pytest

from tests.bench.rate_limit.scenarios import CONTROLLERS, NO_BURST, ORACLES, SCENARIOS, SEEDS, measure

GOALS = {
    "bucket 3 rps": (95, 1),
    "bucket 10 rps": (95, 1),
    "bucket 50 rps": (95, 1),
    "bucket 10 rps, 10 s burst": (95, 1),
    "bucket 200 rps, 10 ms": (95, 1),
    "600/min, Retry-After": (97, 1),
    "60/min, no header": (90, 5),
    "8 concurrent": (95, 0.5),
    "30 concurrent": (95, 0.5),
    "2 concurrent": (95, 0.5),
    "queue, 4 workers": (90, 0),
    "no limit": (95, 0),
}

BEYOND = {NO_BURST: (95, 1)}
"""Printed, not asserted: network jitter alone overdraws a bucket without burst."""


def _lines(found):
    yield "goodput % / rejected % / latency, times that without a queue"
    yield f"{'':27}" + "".join(f"{name:>24}" for name in CONTROLLERS)
    for scenario, row in found.items():
        ones = [row[name] for name in CONTROLLERS]
        cells = (f"{one.goodput:.1f} / {one.rejected:.2f} / {one.latency:.2f}" for one in ones)
        yield f"{scenario:27}" + "".join(f"{cell:>24}" for cell in cells)
    yield "settled after a step down, the worst of the seeds / up, the mean / up, the worst, s"
    for name in CONTROLLERS:
        one = found["step 20-5-20 rps"][name]
        yield f"{name:27}{one.down_s:8.0f} / {one.up_s:.0f} / {one.worst_up_s:.0f}"
    yield f"{NO_BURST}: goodput % / rejected %"
    for name in ("lightmeter", *ORACLES):
        yield f"{name:27}{found[NO_BURST][name].goodput:8.1f} / {found[NO_BURST][name].rejected:.2f}"


def _verdicts(found):
    """Yield each goal and whether it is met."""
    yield "goals of ours: goodput % / rejected %"
    for scenario, (goodput, rejected) in {**GOALS, **BEYOND}.items():
        ours = found[scenario]["lightmeter"]
        met = ours.goodput >= goodput and ours.rejected <= rejected
        yield f"{scenario:27}{goodput:5} / {rejected:<5}{'met' if met else 'missed'}"
    steps, early = found["step 20-5-20 rps"]["lightmeter"], sum(row["lightmeter"].too_early for row in found.values())
    others = {
        "queue at 1.3 x latency": found["queue, 4 workers"]["lightmeter"].latency <= 1.3,
        "settled 30 s after a step down": steps.down_s <= 30,
        "90 % 120 s after a step up, mean": steps.up_s <= 120,
        "90 % 120 s after a step up, worst": steps.worst_up_s <= 120,
        "nothing before a Retry-After ends": early == 0,
    }
    yield from (f"{goal:39}{'met' if met else 'missed'}" for goal, met in others.items())
    yield f"{len(SEEDS)} seeds each; none of them was tuned on"


@pytest.fixture(scope="module")
def table():
    """Figures by scenario and controller; printed once."""
    pairs = [*product(SCENARIOS, CONTROLLERS), *((NO_BURST, name) for name in ORACLES)]
    found = {scenario: {} for scenario in SCENARIOS}
    for (scenario, name), figures in measure(pairs).items():
        found[scenario][name] = figures
    sys.stdout.write("\n".join(["", "", *_lines(found), "", *_verdicts(found), ""]))
    return found


@pytest.mark.parametrize("scenario", GOALS)
def test_goodput_and_rejections(table, scenario):
    """The limiter uses nearly all that the limit allows, with few rejections."""
    goodput, rejected = GOALS[scenario]
    ours = table[scenario]["lightmeter"]
    assert ours.goodput >= goodput
    assert ours.rejected <= rejected


def test_a_queue_is_not_filled(table):
    """A service that queues instead of rejecting is used at no more than 1.3 times its own latency."""
    assert table["queue, 4 workers"]["lightmeter"].latency <= 1.3


def test_steps_are_followed(table):
    """Rejections end 30 s after a step down; 90 % of the limit are used 120 s after a step up."""
    ours = table["step 20-5-20 rps"]["lightmeter"]
    assert ours.down_s <= 30
    assert ours.worst_up_s <= 120


def test_a_retry_after_is_kept(table):
    """No run sends a request before a Retry-After has ended."""
    assert sum(row["lightmeter"].too_early for row in table.values()) == 0
