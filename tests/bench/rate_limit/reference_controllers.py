"""Well-known rate and concurrency controllers, after their published descriptions and with the published constants.

AIMD, Gradient2 and Vegas as in Netflix's concurrency-limits (limits on requests in flight); cubic as in botocore's
adaptive retry mode (a client-side token bucket, set by a CUBIC curve through the measured rate, RFC 8312's shape).
None of them reads Retry-After.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

__all__ = ["AIMD", "Cubic", "Gradient2", "Vegas"]


@dataclass
class _Window:
    """A limit on requests in flight, 1 to 64; when it is reached, the next answer is waited for."""

    limit: float = 20.0
    flying: int = 0

    def wait_s(self, now: float, in_flight: int) -> float:
        self.flying = in_flight
        return 0.0 if in_flight < int(self.limit) else math.inf

    def on_sent(self, now: float) -> int:
        return self.flying + 1

    def clamp(self, limit: float) -> None:
        self.limit = min(64.0, max(1.0, limit))


class AIMD(_Window):
    """Additive increase by 1 for each answer if half the limit is used; decrease by 10 % for each rejection."""

    def on_answer(self, now: float, latency_s: float, token: Any) -> None:
        if token * 2 >= self.limit:
            self.clamp(self.limit + 1)

    def on_throttled(self, now: float, retry_after_s: float | None, token: Any) -> None:
        self.clamp(self.limit * 0.9)


class Gradient2(_Window):
    """Follows the ratio of long-term to present latency (tolerance 1.5, smoothing 0.2, queue size 4)."""

    long_s = 0.0
    samples = 0

    def on_answer(self, now: float, latency_s: float, token: Any) -> None:
        self.samples += 1
        factor = 2 / 601
        self.long_s = latency_s if self.samples == 1 else self.long_s + factor * (latency_s - self.long_s)
        if self.long_s / latency_s > 2:
            self.long_s *= 0.95
        if token < self.limit / 2:
            return
        gradient = max(0.5, min(1.0, 1.5 * self.long_s / latency_s))
        self.clamp(self.limit * 0.8 + (self.limit * gradient + 4) * 0.2)

    def on_throttled(self, now: float, retry_after_s: float | None, token: Any) -> None:
        """Treat a rejection as an answer with low latency, as Gradient2 does."""
        self.on_answer(now, 0.02, token)


class Vegas(_Window):
    """Keeps the estimated queue, limit * (1 - least latency / latency), between 3 and 6 times log10(limit).

    The least latency is reset after 15 to 30 times the limit in answers, so that it can grow.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.least_s = math.inf
        self.answers = 0
        self.jitter = rng.uniform(0.5, 1)

    def on_answer(self, now: float, latency_s: float, token: Any) -> None:
        self.answers += 1
        if self.answers >= self.jitter * 30 * self.limit:
            self.answers, self.jitter, self.least_s = 0, self.rng.uniform(0.5, 1), latency_s
            return
        if latency_s < self.least_s:
            self.least_s = latency_s
            return
        if token * 2 < self.limit:
            return
        log = max(1, int(math.log10(self.limit)))
        queue = math.ceil(self.limit * (1 - self.least_s / latency_s))
        if queue <= log:
            self.clamp(self.limit + 6 * log)
        elif queue < 3 * log:
            self.clamp(self.limit + log)
        elif queue > 6 * log:
            self.clamp(self.limit - log)

    def on_throttled(self, now: float, retry_after_s: float | None, token: Any) -> None:
        self.answers += 1
        self.clamp(self.limit - max(1, int(math.log10(self.limit))))


class Cubic:
    """botocore's adaptive mode: β 0.7, scale 0.4, at most twice the measured rate, bucket of one second."""

    def __init__(self) -> None:
        self.enabled = False
        self.fill = 0.5
        self.tokens = 0.0
        self.filled_at = 0.0
        self.measured = 0.0
        self.slot, self.in_slot = 0.0, 0
        self.last_max, self.window_s, self.throttled_at = 0.0, 0.0, 0.0

    def wait_s(self, now: float, in_flight: int) -> float:
        if not self.enabled:
            return 0.0
        self._refill(now)
        return 0.0 if self.tokens >= 1 else (1 - self.tokens) / self.fill + 1e-6

    def on_sent(self, now: float) -> None:
        self._refill(now)
        self.tokens = max(0.0, self.tokens - 1)

    def _refill(self, now: float) -> None:
        self.tokens = min(max(1.0, self.fill), self.tokens + (now - self.filled_at) * self.fill)
        self.filled_at = now

    def _measure(self, now: float) -> None:
        slot = math.floor(now * 2) / 2
        self.in_slot += 1
        if slot > self.slot:
            self.measured = self.measured * 0.2 + self.in_slot / (slot - self.slot) * 0.8
            self.slot, self.in_slot = slot, 0

    def _set(self, now: float, rate: float) -> None:
        self._refill(now)
        self.fill = max(0.5, min(rate, 2 * self.measured))
        self.tokens = min(self.tokens, max(1.0, self.fill))

    def on_answer(self, now: float, latency_s: float, token: Any) -> None:
        self._measure(now)
        self.window_s = (self.last_max * 0.3 / 0.4) ** (1 / 3)
        if self.enabled:
            self._set(now, 0.4 * (now - self.throttled_at - self.window_s) ** 3 + self.last_max)

    def on_throttled(self, now: float, retry_after_s: float | None, token: Any) -> None:
        self._measure(now)
        rate = min(self.measured, self.fill) if self.enabled else self.measured
        self.last_max, self.throttled_at, self.enabled = rate, now, True
        self.window_s = (rate * 0.3 / 0.4) ** (1 / 3)
        self._set(now, rate * 0.7)
