"""Hidden limits, who is compared, and what is measured: ten virtual minutes each, warm-up included."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pace_peers import AIMD, Cubic, Gradient2, Vegas
from pace_world import Bucket, Cap, Controller, Queue, Report, Service, Unlimited, Window, recent_rate, simulate

from lightmeter.client.pace import Pace, Ticket

__all__ = ["CONTROLLERS", "PEER_SEEDS", "SCENARIOS", "SEEDS", "Figures", "measure"]

SECONDS = 600.0
SEEDS = range(1000, 1020)
"""Constants were chosen while looking at seeds 0 to 7 only."""
PEER_SEEDS = range(1000, 1002)
"""The peers' rejections make their runs ten times as long, and their means hardly differ between seeds."""
DOWN_AT, UP_AT = 200.0, 400.0


class Ours:
    """The toolkit's own pace, asked as the engine asks it."""

    def __init__(self, rng: random.Random) -> None:
        self.pace = Pace(64, jitter=rng.random)

    def wait_s(self, now: float, in_flight: int) -> float:
        return self.pace.wait_s(now, in_flight)

    def sent(self, now: float) -> Ticket:
        self.pace.on_taken(now)
        return self.pace.on_sent(now)

    def answered(self, now: float, latency_s: float, token: Any) -> None:
        self.pace.on_answer(now, latency_s, token)

    def throttled(self, now: float, retry_after_s: float | None, token: Any) -> None:
        self.pace.on_throttled(now, retry_after_s, token)


CONTROLLERS: dict[str, Callable[[random.Random], Controller]] = {
    "lightmeter": Ours,
    "AIMD": lambda _: AIMD(),
    "Gradient2": lambda _: Gradient2(),
    "Vegas": Vegas,
    "cubic": lambda _: Cubic(),
}


def _steps(high: float, low: float) -> Callable[[float], float]:
    return lambda now: low if DOWN_AT <= now < UP_AT else high


SCENARIOS: dict[str, Callable[[random.Random], Service]] = {
    "bucket 3 rps": lambda rng: Bucket(rng, lambda _: 3.0),
    "bucket 10 rps": lambda rng: Bucket(rng, lambda _: 10.0),
    "bucket 50 rps": lambda rng: Bucket(rng, lambda _: 50.0),
    "bucket 10 rps, 10 s burst": lambda rng: Bucket(rng, lambda _: 10.0, burst_s=10.0),
    "bucket 10 rps, no burst": lambda rng: Bucket(rng, lambda _: 10.0, burst_s=0.0),
    "600/min, Retry-After": lambda rng: Window(rng, 600, 60.0, header=True),
    "60/min, no header": lambda rng: Window(rng, 60, 60.0, header=False),
    "8 concurrent": lambda rng: Cap(rng, 8),
    "30 concurrent": lambda rng: Cap(rng, 30),
    "2 concurrent": lambda rng: Cap(rng, 2),
    "queue, 4 workers": lambda rng: Queue(rng, 4),
    "step 20-5-20 rps": lambda rng: Bucket(rng, _steps(20.0, 5.0)),
    "no limit": Unlimited,
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the seeds.

    Attributes:
        goodput: Requests taken, % of what the limit allows.
        rejected: Requests turned away, % of those sent.
        latency: Mean latency, as a multiple of that without a queue.
        down_s: After a step down, until no five seconds have more than a rejection in two seconds; the worst seed.
        up_s: After a step up, until ten seconds bring 90 % of the new limit; the mean of the seeds.
        too_early: Requests sent before a Retry-After had ended, all seeds together.
        worst_up_s: As `up_s`, of the worst seed.
    """

    goodput: float
    rejected: float
    latency: float
    down_s: float
    up_s: float
    too_early: int
    worst_up_s: float = 0.0


def measure(scenario: str, controller: str) -> Figures:
    """Run one controller against one limit with every seed."""
    reports = [_run(scenario, controller, seed) for seed in (SEEDS if controller == "lightmeter" else PEER_SEEDS)]
    steps = "step" in scenario
    base_s = SCENARIOS[scenario](random.Random(0)).latency_s + 0.01  # noqa: S311 (a simulation; no secret)
    return Figures(
        statistics.fmean(100 * len(report.taken) / capacity for report, capacity in reports),
        statistics.fmean(
            100 * len(report.rejected) / (len(report.taken) + len(report.rejected)) for report, _ in reports
        ),
        statistics.fmean(statistics.fmean(report.latencies) / base_s for report, _ in reports),
        max(_settled_down_s(report) for report, _ in reports) if steps else 0.0,
        statistics.fmean(_settled_up_s(report) for report, _ in reports) if steps else 0.0,
        sum(report.too_early for report, _ in reports),
        max(_settled_up_s(report) for report, _ in reports) if steps else 0.0,
    )


def _run(scenario: str, controller: str, seed: int) -> tuple[Report, float]:
    rng = random.Random(seed)  # noqa: S311 (as above)
    service = SCENARIOS[scenario](rng)
    report = simulate(CONTROLLERS[controller](rng), service, rng, SECONDS)
    return report, service.capacity(0.0, SECONDS)


def _settled_down_s(report: Report) -> float:
    bad = [end for end, rate in recent_rate(report.rejected, 5, SECONDS) if DOWN_AT + 5 < end < UP_AT and rate > 0.5]
    return max(0.0, max(bad) - 5 - DOWN_AT) if bad else 0.0


def _settled_up_s(report: Report) -> float:
    good = [end for end, rate in recent_rate(report.taken, 10, SECONDS) if end >= UP_AT + 10 and rate >= 18]
    return good[0] - UP_AT if good else float("inf")
