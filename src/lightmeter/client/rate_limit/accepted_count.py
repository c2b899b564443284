"""Counts the requests that were accepted since a given one."""

from __future__ import annotations

from lightmeter.client.rate_limit.pacer import SendRecord


class AcceptedCount:
    """Number of requests accepted since `start`: those sent minus those rejected or lost.

    Attributes:
        start: The request at which counting starts.
        not_accepted: Requests rejected or lost since then.
    """

    def __init__(self, start: SendRecord) -> None:
        self.start = start
        self.not_accepted = 0

    def on_not_accepted(self, record: SendRecord) -> None:
        """Count a request that was rejected or lost, unless it was sent before `start`."""
        if record.number >= self.start.number:
            self.not_accepted += 1

    def accepted_until(self, record: SendRecord) -> int:
        """Return the requests accepted between `start` and this one."""
        return record.number - self.start.number - self.not_accepted

    def rate_until(self, record: SendRecord) -> float | None:
        """Return the requests per second accepted between `start` and this one; None if there were none."""
        accepted, duration_s = self.accepted_until(record), record.sent_at - self.start.sent_at
        return accepted / duration_s if accepted > 0 and duration_s > 0 else None
