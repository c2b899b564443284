"""Limits the requests in flight to models on this machine, so that few requests wait for a free core."""

from __future__ import annotations

from typing import Final

from lightmeter.client.rate_limit.limiter import AdaptiveLimiter
from lightmeter.client.rate_limit.pacer import SendRecord

MAX_QUEUE_S: Final = 4.0
"""Seconds of work that may be in flight: a stopped run waits about as long.

More requests in flight would not make the cores faster.
"""


class LocalLimiter(AdaptiveLimiter):
    """Limiter for a service whose models run on this machine.

    Args:
        max_in_flight: Most requests in flight at the same time, 1 or more.
        cores: Number of cores. One request more than that may always be in flight, however long an answer takes.
    """

    def __init__(self, max_in_flight: int, cores: int) -> None:
        super().__init__(max_in_flight, watch_latency=False)
        self._least = min(max_in_flight, cores + 1)
        self.in_flight_limit = float(self._least)

    def on_answer(self, now: float, latency_s: float, record: SendRecord) -> None:
        """Learn from an answer as `AdaptiveLimiter` does, but let no more than `MAX_QUEUE_S` of work be in flight.

        The requests that were in flight before this one took about its latency, together with it.
        """
        before = self.in_flight_limit
        super().on_answer(now, latency_s, record)
        most = (record.in_flight + 1) * MAX_QUEUE_S / max(latency_s, 1e-3)
        if self.in_flight_limit > most:
            self.in_flight_limit = max(float(self._least), before - 1 if before > most else before)
