"""Simulates a client with endless requests against a service with a hidden limit, on a virtual clock.

The controller decides when the client may send. The network takes 2 to 8 ms each way. The service accepts or rejects
requests according to its limit. All randomness comes from one seed.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Protocol

__all__ = ["Bucket", "Cap", "Controller", "Queue", "Reply", "Report", "Service", "Unlimited", "Window", "simulate"]

MAX_IN_FLIGHT = 64
"""Requests in flight that the client allows, the same for every controller."""


class Controller(Protocol):
    """The interface of a compared controller."""

    def wait_s(self, now: float, in_flight: int) -> float: ...
    def on_sent(self, now: float) -> Any: ...
    def on_answer(self, now: float, latency_s: float, token: Any) -> None: ...
    def on_throttled(self, now: float, retry_after_s: float | None, token: Any) -> None: ...


class Reply(NamedTuple):
    """The service's reply to a request: whether it is accepted, after how long, and with which Retry-After."""

    accepted: bool
    after_s: float
    retry_after_s: float | None = None


class Service(Protocol):
    """A service with a hidden limit; `capacity` is the requests it would accept between two times."""

    def arrive(self, now: float) -> Reply: ...
    def capacity(self, start: float, end: float) -> float: ...


def _spread(rng: random.Random, mean_s: float, sigma: float = 0.25) -> float:
    """Return a random service time: lognormal with this mean."""
    return rng.lognormvariate(math.log(mean_s) - sigma**2 / 2, sigma)


REJECTED = Reply(accepted=False, after_s=0.01)


@dataclass
class Bucket:
    """A token bucket that refills at `rate(now)` requests per second and holds one second's worth, at least 1."""

    rng: random.Random
    rate: Callable[[float], float]
    latency_s: float = 0.2
    burst_s: float = 1.0
    tokens: float = -1.0
    refilled_at: float = 0.0

    def arrive(self, now: float) -> Reply:
        rate = self.rate(now)
        burst = max(1.0, rate * self.burst_s)
        self.tokens = burst if self.tokens < 0 else min(burst, self.tokens + (now - self.refilled_at) * rate)
        self.refilled_at = now
        if self.tokens < 1:
            return REJECTED
        self.tokens -= 1
        return Reply(accepted=True, after_s=_spread(self.rng, self.latency_s))

    def capacity(self, start: float, end: float) -> float:
        steps = 1000
        return sum(self.rate(start + (end - start) * (i + 0.5) / steps) for i in range(steps)) * (end - start) / steps


@dataclass
class Window:
    """A quota for each fixed window; the first window began at a random time before the client started."""

    rng: random.Random
    most: int
    period_s: float
    header: bool
    latency_s: float = 0.2
    number: int = -1
    used: int = 0
    offset_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.offset_s = self.rng.random() * self.period_s

    def arrive(self, now: float) -> Reply:
        number = int((now + self.offset_s) // self.period_s)
        if number != self.number:
            self.number, self.used = number, 0
        if self.used >= self.most:
            left = (number + 1) * self.period_s - self.offset_s - now
            return REJECTED._replace(retry_after_s=math.ceil(left)) if self.header else REJECTED
        self.used += 1
        return Reply(accepted=True, after_s=_spread(self.rng, self.latency_s))

    def capacity(self, start: float, end: float) -> float:
        return (end - start) * self.most / self.period_s


@dataclass
class Cap:
    """A limit on requests at the same time."""

    rng: random.Random
    most: int
    latency_s: float = 0.5
    busy: list[float] = field(default_factory=list)

    def arrive(self, now: float) -> Reply:
        while self.busy and self.busy[0] <= now:
            heapq.heappop(self.busy)
        if len(self.busy) >= self.most:
            return REJECTED
        after_s = _spread(self.rng, self.latency_s)
        heapq.heappush(self.busy, now + after_s)
        return Reply(accepted=True, after_s=after_s)

    def capacity(self, start: float, end: float) -> float:
        return (end - start) * self.most / self.latency_s


@dataclass
class Queue:
    """Workers with an unlimited queue: nothing is rejected, but answers become slower."""

    rng: random.Random
    workers: int
    latency_s: float = 0.2
    free: list[float] = field(default_factory=list)

    def arrive(self, now: float) -> Reply:
        start = now if len(self.free) < self.workers else max(now, heapq.heappop(self.free))
        end = start + _spread(self.rng, self.latency_s)
        heapq.heappush(self.free, end)
        return Reply(accepted=True, after_s=end - now)

    def capacity(self, start: float, end: float) -> float:
        return (end - start) * self.workers / self.latency_s


@dataclass
class Unlimited:
    """No limit at all."""

    rng: random.Random
    latency_s: float = 0.2

    def arrive(self, now: float) -> Reply:
        return Reply(accepted=True, after_s=_spread(self.rng, self.latency_s))

    def capacity(self, start: float, end: float) -> float:
        return (end - start) * MAX_IN_FLIGHT / (self.latency_s + 0.01)


@dataclass
class Report:
    """The result of a simulation.

    Attributes:
        accepted_at: Times at which requests were accepted.
        rejected: Times at which requests were rejected.
        latencies: Seconds from sending to answer, of accepted requests.
        too_early: Requests sent before a Retry-After that the client knew of had ended.
        seconds: Duration in virtual seconds.
    """

    accepted_at: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    too_early: int = 0
    seconds: float = 0.0


def simulate(
    controller: Controller,
    service: Service,
    rng: random.Random,
    seconds: float,
    *,
    late_s: float = 0.0,
    most_rejected: float = math.inf,
) -> Report:
    """Run a controller against a service and return the result.

    Args:
        controller: The controller.
        service: The service.
        rng: Source of all randomness.
        seconds: Virtual seconds to run.
        late_s: Mean lateness of timers, as on a busy machine.
        most_rejected: Rejections after which the run ends early.
    """
    return _World(controller, service, rng, late_s).run(seconds, most_rejected)


class _World:
    """One run; written for speed, because it handles millions of requests."""

    def __init__(self, controller: Controller, service: Service, rng: random.Random, late_s: float) -> None:
        self.controller, self.service, self.random, self.late_s = controller, service, rng.random, late_s
        self.expovariate = rng.expovariate
        self.report = Report()
        self.in_flight = 0
        self.quiet_until = 0.0
        self.wake_at = 0.0
        self.order = count()
        self.events: list[tuple[float, int, float, Any, Reply | None]] = []

    def run(self, seconds: float, most_rejected: float) -> Report:
        """Process events: (time, order, time the request was sent or -1 for a timer, token, reply if there is one)."""
        events, random, order, arrive = self.events, self.random, self.order, self.service.arrive
        heappush, heappop = heapq.heappush, heapq.heappop
        add_accepted, add_rejected = self.report.accepted_at.append, self.report.rejected.append
        self.report.seconds, left = seconds, most_rejected
        self.fill(0.0)
        while events and events[0][0] < seconds:
            now, _, sent_at, token, reply = heappop(events)
            if reply is not None:
                self.answer(now, sent_at, token, reply)
            elif sent_at >= 0:
                reply = arrive(now)
                if reply.accepted:
                    add_accepted(now)
                else:
                    add_rejected(now)
                    left -= 1
                    if left < 0:
                        self.report.seconds = now
                        break
                at = now + reply.after_s + 0.002 + 0.006 * random()
                heappush(events, (at, next(order), sent_at, token, reply))
                continue
            elif now < self.wake_at:
                continue  # an outdated timer: a later one has been set
            self.fill(now)
        return self.report

    def fill(self, now: float) -> None:
        """Send all that is allowed, then set a timer; timers are up to a millisecond late, like real ones."""
        controller, random = self.controller, self.random
        while self.in_flight < MAX_IN_FLIGHT:
            wait_s = controller.wait_s(now, self.in_flight)
            if wait_s > 0:
                if wait_s < math.inf:
                    late_s = self.expovariate(1 / self.late_s) if self.late_s else 0.0
                    self.wake_at = now + wait_s + random() * 0.001 + late_s
                    heapq.heappush(self.events, (self.wake_at, next(self.order), -1.0, None, None))
                return
            self.in_flight += 1
            if now < self.quiet_until:
                self.report.too_early += 1
            at = now + 0.002 + 0.006 * random()
            heapq.heappush(self.events, (at, next(self.order), now, controller.on_sent(now), None))

    def answer(self, now: float, sent_at: float, token: Any, reply: Reply) -> None:
        self.in_flight -= 1
        if reply.accepted:
            self.report.latencies.append(now - sent_at)
            self.controller.on_answer(now, now - sent_at, token)
            return
        if reply.retry_after_s is not None:
            self.quiet_until = max(self.quiet_until, now + reply.retry_after_s)
        self.controller.on_throttled(now, reply.retry_after_s, token)


def recent_rate(instants: list[float], window_s: float, seconds: float) -> list[tuple[float, float]]:
    """Return (end of window, events per second in it) for windows that move by one second."""
    window: deque[float] = deque()
    found, at = [], 0
    for end in range(int(window_s), int(seconds) + 1):
        while at < len(instants) and instants[at] < end:
            window.append(instants[at])
            at += 1
        while window and window[0] < end - window_s:
            window.popleft()
        found.append((float(end), len(window) / window_s))
    return found
