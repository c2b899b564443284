"""Scenarios of the limiter benchmark: hidden limits, controllers, and figures over ten virtual minutes."""

from __future__ import annotations

import math
import multiprocessing
import random
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from lightmeter.client.rate_limit import AdaptiveLimiter, SendRecord
from lightmeter.client.rate_limit.pacer import RequestPacer
from tests.bench.rate_limit.reference_controllers import AIMD, Cubic, Gradient2, Vegas
from tests.bench.rate_limit.simulation import (
    Bucket,
    Cap,
    Controller,
    Queue,
    Report,
    Service,
    Unlimited,
    Window,
    recent_rate,
    simulate,
)

__all__ = ["CONTROLLERS", "NO_BURST", "ORACLES", "SCENARIOS", "SEEDS", "Figures", "measure"]

SECONDS = 600.0
SEEDS = range(1000, 1020)
"""The same seeds for all controllers; the limiter was tuned on other seeds."""
MAX_REJECTED = 200_000
"""A run ends after so many rejections, after a virtual minute or more; its figures are of that time. Only runs with a
changing limit always last ten minutes."""
DOWN_AT, UP_AT = 200.0, 400.0


class LightmeterController:
    """The toolkit's own limiter, used as the engine uses it."""

    def __init__(self, rng: random.Random) -> None:
        self.limiter = AdaptiveLimiter(64, jitter=rng.random)

    def wait_s(self, now: float, in_flight: int) -> float:
        return self.limiter.wait_s(now, in_flight)

    def on_sent(self, now: float) -> SendRecord:
        self.limiter.on_admitted(now)
        return self.limiter.on_sent(now)

    def on_answer(self, now: float, latency_s: float, token: Any) -> None:
        self.limiter.on_answer(now, latency_s, token)

    def on_throttled(self, now: float, retry_after_s: float | None, token: Any) -> None:
        self.limiter.on_throttled(now, retry_after_s, token)


class Oracle:
    """A controller that knows the limit and sends evenly at a part of it: the best possible without bursts."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.pacer = RequestPacer()
        self.pacer.on_rejected(0.0)

    def wait_s(self, now: float, in_flight: int) -> float:
        return self.pacer.wait_s(now, self.rate)

    def on_sent(self, now: float) -> None:
        self.pacer.on_admitted(now, self.rate)

    def on_answer(self, now: float, latency_s: float, token: Any) -> None: ...

    def on_throttled(self, now: float, retry_after_s: float | None, token: Any) -> None:
        self.pacer.on_rejected(now)


CONTROLLERS: dict[str, Callable[[random.Random], Controller]] = {
    "lightmeter": LightmeterController,
    "AIMD": lambda _: AIMD(),
    "Gradient2": lambda _: Gradient2(),
    "Vegas": Vegas,
    "cubic": lambda _: Cubic(),
}


ORACLES: dict[str, Callable[[random.Random], Controller]] = {
    "one who knows it, at 0.94": lambda _: Oracle(9.4),
    "at 0.95": lambda _: Oracle(9.5),
    "at 0.97": lambda _: Oracle(9.7),
}
"""Only compared in the scenario `NO_BURST`."""


def _steps(high: float, low: float) -> Callable[[float], float]:
    return lambda now: low if DOWN_AT <= now < UP_AT else high


NO_BURST = "bucket 10 rps, no burst"

SCENARIOS: dict[str, Callable[[random.Random], Service]] = {
    "bucket 3 rps": lambda rng: Bucket(rng, lambda _: 3.0),
    "bucket 10 rps": lambda rng: Bucket(rng, lambda _: 10.0),
    "bucket 50 rps": lambda rng: Bucket(rng, lambda _: 50.0),
    "bucket 10 rps, 10 s burst": lambda rng: Bucket(rng, lambda _: 10.0, burst_s=10.0),
    "bucket 200 rps, 10 ms": lambda rng: Bucket(rng, lambda _: 200.0, latency_s=0.01),
    NO_BURST: lambda rng: Bucket(rng, lambda _: 10.0, burst_s=0.0),
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
    """Figures of one run, or means and worst cases of several.

    Attributes:
        goodput: Accepted requests, % of what the limit allows, at most 100.
        rejected: Rejected requests, % of those sent.
        latency: Mean latency, as a multiple of that without a queue.
        down_s: Seconds after a step down until rejections are below one in two seconds; the worst.
        up_s: Seconds after a step up until 90 % of the new limit are used for ten seconds; the mean.
        worst_up_s: The same, the worst case.
        too_early: Requests sent before a Retry-After had ended, of all runs.
    """

    goodput: float
    rejected: float
    latency: float
    down_s: float
    up_s: float
    worst_up_s: float
    too_early: int


def measure(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Figures]:
    """Run controllers against limits, pairs of (scenario, controller), with every seed, on all cores."""
    jobs = [(scenario, controller, seed) for scenario, controller in pairs for seed in SEEDS]
    jobs.sort(key=lambda job: job[1] != "Gradient2")  # the longest runs first, so that no core idles at the end
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        found: dict[tuple[str, str], list[Figures]] = {}
        for (scenario, controller, _), one in zip(jobs, pool.map(_run, jobs), strict=True):
            found.setdefault((scenario, controller), []).append(one)
    return {pair: _together(runs) for pair, runs in found.items()}


def _together(runs: list[Figures]) -> Figures:
    def mean(name: str) -> float:
        return statistics.fmean(getattr(run, name) for run in runs)

    return Figures(
        mean("goodput"),
        mean("rejected"),
        mean("latency"),
        max(run.down_s for run in runs),
        mean("up_s"),
        max(run.worst_up_s for run in runs),
        sum(run.too_early for run in runs),
    )


def _run(job: tuple[str, str, int]) -> Figures:
    scenario, controller, seed = job
    rng = random.Random(seed)  # noqa: S311 (a simulation; no secret)
    service = SCENARIOS[scenario](rng)
    steps = "step" in scenario
    client = {**CONTROLLERS, **ORACLES}[controller](rng)
    report = simulate(client, service, rng, SECONDS, most_rejected=math.inf if steps else MAX_REJECTED)
    accepted_count, rejected = len(report.accepted_at), len(report.rejected)
    up_s = _settled_up_s(report) if steps else 0.0
    return Figures(
        min(100.0, 100 * accepted_count / service.capacity(0.0, report.seconds)),
        100 * rejected / (accepted_count + rejected),
        statistics.fmean(report.latencies) / (service.latency_s + 0.01),
        _settled_down_s(report) if steps else 0.0,
        up_s,
        up_s,
        report.too_early,
    )


def _settled_down_s(report: Report) -> float:
    bad = [end for end, rate in recent_rate(report.rejected, 5, SECONDS) if DOWN_AT + 5 < end < UP_AT and rate > 0.5]
    return max(0.0, max(bad) - 5 - DOWN_AT) if bad else 0.0


def _settled_up_s(report: Report) -> float:
    good = [end for end, rate in recent_rate(report.accepted_at, 10, SECONDS) if end >= UP_AT + 10 and rate >= 18]
    return good[0] - UP_AT if good else float("inf")
