"""`JobQueue`, the common interface of the two job queues, which are in `local_queue` and `postgres_queue`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from lightmeter.clock import Clock
from lightmeter.service.jobs.runner import Runner
from lightmeter.service.store.requests import NewRequest
from lightmeter.service.store.sql_dialects import Connection
from lightmeter.service.store.store import Store

REQUESTS_AT_ONCE: Final = 16
"""Maximum requests of one account that a process takes from the job queue and runs at the same time.

For all accounts together, the maximum is twice as high (see `FairSemaphore`). Several requests run at the same time, so
that some fetch their images and videos while others are analyzed. Each running request has its uploads in memory. If
the process crashes, this counts as a crash of each running request (see `store.poison`).
"""


class JobQueue(ABC):
    """Base class of the job queues, which run the requests whose clients poll for the result.

    Args:
        store: Store of requests.
        runner: Runs each request that the queue starts: analyzes it and stores the result.
        clock: Source of the time.
    """

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock
        runner.metrics.watch_queue_depth("jobs", lambda: sum(self.waiting_requests.values()))

    @property
    @abstractmethod
    def waiting_requests(self) -> Mapping[int, int]:
        """Account number → number of its queued requests that do not run yet. The numbers may be some seconds old."""

    def enqueue(self, db: Connection, new: NewRequest) -> None:  # noqa: B027 (by default, its row is its queue entry)
        """Add a new request to the queue if its client polls. `db` is the transaction that stores the request.

        If the client waits for the answer, the request is not queued. It is deleted if this process dies before the
        request has ended. By default, this method does nothing: the stored request itself is the entry in the queue.
        """

    def start_queued(self, request_id: str, account_id: int) -> None:  # noqa: B027 (by default, the commit notifies the workers)
        """Let a queued request run when its turn has come. Call this after the transaction of `enqueue` is committed.

        By default, this method does nothing.
        """

    @abstractmethod
    async def open(self) -> None:
        """Start to run queued requests, including unfinished requests of processes that have died."""

    @abstractmethod
    async def drain(self, seconds: float) -> None:
        """Stop the queue: wait up to `seconds` for requests of this process to end, then cancel the rest.

        A subclass may wait longer, or cancel earlier. Another process, or this service after a restart, runs cancelled
        requests again.
        """
