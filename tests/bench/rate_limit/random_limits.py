"""Random hidden limits, one for each seed, and the goodput of a controller from 15 s on.

The limits: token buckets of 3 to 60/s that hold 1 to 20; fixed windows of 20 to 600 requests per 10, 15, 20, 30 or
60 s, with a Retry-After and without; 2 to 40 at once. Latencies are 0.05 to 3 s on average. All are drawn on a
logarithmic scale. At most 64 requests are in flight.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.rate_limit.simulation import MAX_IN_FLIGHT, Bucket, Cap, Report, Window

__all__ = ["KINDS", "LEAD_S", "Draw", "Result", "draw", "judge", "opening_of", "service_of"]

KINDS = ("bucket", "window, Retry-After", "window", "cap")
LEAD_S = 15.0
"""Seconds that a controller may search before its goodput counts."""

_LENGTHS_S = (10.0, 15.0, 20.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Draw:
    """A hidden limit.

    Attributes:
        kind: One of `KINDS`.
        limit: Tokens per second, requests per window, or requests at once.
        size: Capacity of a bucket in tokens, or the length of a window in seconds; 0 for a cap.
        latency_s: Mean seconds from arrival to answer of an accepted request.
        seconds: How long a run lasts: a minute; with windows until three have begun after the lead.
    """

    kind: str
    limit: float
    size: float
    latency_s: float
    seconds: float

    def __str__(self) -> str:
        texts = {
            "bucket": f"bucket {self.limit:.1f}/s, burst {self.size:.0f}",
            "cap": f"{self.limit:.0f} at once",
        }
        text = texts.get(self.kind, f"{self.limit:.0f} per {self.size:.0f} s")
        return f"{text}{', Retry-After' if 'Retry' in self.kind else ''}, {self.latency_s:.2f} s"

    @property
    def per_s(self) -> float:
        """Requests per second that the limit and `MAX_IN_FLIGHT` allow, about."""
        limits = {"bucket": self.limit, "cap": self.limit / self.latency_s}
        return min(MAX_IN_FLIGHT / self.latency_s, limits.get(self.kind, self.limit / max(1.0, self.size)))


def service_of(drawn: Draw, seed: int) -> Bucket | Cap | Window:
    """Return the service with this limit; its randomness comes from the seed."""
    rng = random.Random(f"service {seed}")  # noqa: S311 (a simulation; no secret)
    if drawn.kind == "bucket":
        return Bucket(rng, lambda _: drawn.limit, drawn.latency_s, burst_s=drawn.size / drawn.limit)
    if drawn.kind == "cap":
        return Cap(rng, int(drawn.limit), drawn.latency_s)
    return Window(rng, int(drawn.limit), drawn.size, "Retry" in drawn.kind, drawn.latency_s)


def opening_of(service: Bucket | Cap | Window, began_s: float = 0.0) -> Callable[[float], float] | None:
    """Return a function to the first window reset at or after a time; None for other limits.

    Times are on the clock of a client that began at `began_s`.
    """
    if not isinstance(service, Window):
        return None
    offset_s, period_s = service.offset_s + began_s, service.period_s
    return lambda at: math.ceil((at + offset_s) / period_s) * period_s - offset_s


def draw(kind: str, seed: int) -> Draw:
    """Return the limit of this kind for a seed."""
    rng = random.Random(f"{kind} {seed}")  # noqa: S311 (a simulation; no secret)

    def between(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    latency_s = between(0.05, 3.0)
    if kind == "bucket":
        return Draw(kind, between(3, 60), round(between(1, 20)), latency_s, 60.0)
    if kind == "cap":
        return Draw(kind, round(between(2, 40)), 0.0, latency_s, 60.0)
    length_s = rng.choice(_LENGTHS_S)
    return Draw(kind, round(between(20, 600)), length_s, latency_s, max(60.0, LEAD_S + 3 * length_s))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Attributes:
        goodput: Accepted requests from 15 s on, % of what the limit and 64 in flight allow.
        rejected: Rejected requests.
        sent: Requests sent.
        rejected_later: Rejected requests from 15 s on.
        sent_later: Requests sent from 15 s on.
    """

    goodput: float
    rejected: int
    sent: int
    rejected_later: int
    sent_later: int

    @property
    def share(self) -> float:
        """Rejected requests, % of those sent."""
        return 100 * self.rejected / max(1, self.sent)

    @property
    def share_later(self) -> float:
        """The same from 15 s on."""
        return 100 * self.rejected_later / max(1, self.sent_later)


def judge(drawn: Draw, report: Report, opening_s: Callable[[float], float] | None = None) -> Result:
    """Return the result of a run.

    What 64 requests in flight allow is computed with the observed mean latency, because network time and random
    latencies do not depend on the controller.

    Args:
        drawn: The limit.
        report: The simulation's report.
        opening_s: Returns the first window reset at or after a time; only for windows, which are counted whole.
    """
    start, end = LEAD_S, report.seconds
    latency_s = statistics.fmean(report.latencies or [drawn.latency_s])
    at_most = MAX_IN_FLIGHT / latency_s
    if drawn.kind == "cap":
        rate = min(at_most, drawn.limit / latency_s)
    elif opening_s is None:
        rate = min(at_most, drawn.limit)
    else:
        start = opening_s(start)
        end = start + drawn.size * int((end - start) / drawn.size)
        rate = min(at_most, drawn.limit / drawn.size)
    accepted_count = sum(start <= at < end for at in report.accepted_at)
    rejected = len(report.rejected)
    rejected_later = sum(at >= LEAD_S for at in report.rejected)
    sent_later = rejected_later + sum(at >= LEAD_S for at in report.accepted_at)
    return Result(
        100 * accepted_count / (rate * (end - start)),
        rejected,
        rejected + len(report.accepted_at),
        rejected_later,
        sent_later,
    )
