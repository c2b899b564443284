"""Measures how well the limiter uses random hidden limits from 15 s on, simulated and in real time.

Run with `make bench BENCH=tests/bench/rate_limit`. In simulation, 200 limits of each kind, in seconds.
In real time, six of each kind, before a server in a process of its own, by the toolkit's own client: some minutes.
What depends on the machine is printed, not asserted.
"""

from __future__ import annotations

import random
import statistics
import sys

import pytest

from tests.bench.rate_limit.random_limits import KINDS, draw, judge, opening_of, service_of
from tests.bench.rate_limit.real_time import measure_real_time
from tests.bench.rate_limit.scenarios import LightmeterController
from tests.bench.rate_limit.simulation import simulate

SIMULATED = range(5000, 5200)
REAL = range(900, 906)
"""The limiter was tuned on other seeds."""
GOAL, MAX_REJECTED, FEW = 95.0, 1.0, 3
"""Goodput in %; rejections in %, or so many requests where one percent is less than one request."""


def _met(result):
    few = result.share_later <= MAX_REJECTED or result.rejected_later <= FEW
    return result.goodput >= GOAL and few


def _summary(kind, results):
    goodputs = [min(100.0, one.goodput) for one in results]
    rejected, sent = sum(one.rejected_later for one in results), sum(one.sent_later for one in results)
    enough = sum(one >= GOAL for one in goodputs) / len(results)
    early = statistics.fmean(one.rejected - one.rejected_later for one in results)
    return (
        f"{kind:22} goodput mean {statistics.fmean(goodputs):5.1f}, worst {min(goodputs):5.1f}, at least {GOAL:.0f} in "
        f"{enough:.0%}; rejected {100 * rejected / max(1, sent):.2f} %, "
        f"the most {max(one.rejected_later for one in results)}; "
        f"both goals met in {sum(map(_met, results)) / len(results):.0%}; before 15 s rejected {early:.1f} on average"
    )


def _simulated(kind, seed):
    drawn, rng = draw(kind, seed), random.Random(seed)  # noqa: S311 (a simulation; no secret)
    service = service_of(drawn, seed)
    return judge(drawn, simulate(LightmeterController(rng), service, rng, drawn.seconds), opening_of(service))


@pytest.mark.parametrize("kind", KINDS)
def test_settled_in_simulation(kind):
    """From 15 s on the limiter uses nearly all of random limits, on average."""
    tight = [seed for seed in SIMULATED if kind == "bucket" and draw(kind, seed).size == 1]
    results = [_simulated(kind, seed) for seed in SIMULATED if seed not in tight]
    sys.stdout.write(f"\nfrom 15 s on: {_summary(kind, results)}\n")
    if tight:  # network jitter alone overdraws a bucket of one token
        sys.stdout.write(f"{_summary('... that holds one', [_simulated(kind, seed) for seed in tight])}\n")
    assert statistics.fmean(min(100.0, one.goodput) for one in results) >= GOAL


def test_settled_in_real_time():
    """Every limit is found in real time, too; the figures are printed."""
    runs = measure_real_time([(kind, seed) for seed in REAL for kind in KINDS])
    lines = [
        f"{drawn!s:42} goodput {one.goodput:5.1f} %, rejected from 15 s on {one.rejected_later} of {one.sent_later}, "
        f"in all {one.rejected} of {one.sent}{'' if _met(one) else '  (missed)'}"
        for drawn, one, _ in sorted(runs, key=lambda run: run[0].kind)
    ]
    lines += [_summary(kind, [one for drawn, one, _ in runs if drawn.kind == kind]) for kind in KINDS]
    sys.stdout.write("\n".join(["", "in real time, from 15 s on:", *lines, ""]))
    assert all(one.sent for _, one, _ in runs)
