"""The interface `JobQueue` of the two job queues, which are in `local_queue` and `postgres_queue`."""

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
"""Requests of one account that a process takes from the job queue and runs at once.

Some fetch their assets while others are analyzed. All accounts together may have twice as many; see `FairSemaphore`.
Their uploads are in memory, and a crash of the process counts as a crash of each of them (see `store.poison`)."""


class JobQueue(ABC):
    """Base class of the job queues, which run the requests whose clients poll for the result.

    Args:
        store: Store of requests.
        runner: Analyzes a request and stores its result, when its turn has come.
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
        """Number of queued requests that do not run yet, by account number; may be a few seconds old."""

    def enqueue(self, db: Connection, new: NewRequest) -> None:  # noqa: B027 (by default, its row is its queue entry)
        """Add a new request to the queue if its client polls; `db` is the transaction that stores the request.

        By default a no-op: the stored request is the entry in the queue. A request whose client waits for the answer is
        not queued, and is deleted if this process dies before the request has ended.
        """

    def start_queued(self, request_id: str, account_id: int) -> None:  # noqa: B027 (by default, the commit notifies the workers)
        """Let the queued request run; called after the transaction of `enqueue` is committed. By default, a no-op."""

    @abstractmethod
    async def open(self) -> None:
        """Start to run queued requests, including unfinished requests of processes that have died."""

    @abstractmethod
    async def drain(self, seconds: float) -> None:
        """Stop starting requests, and wait up to `seconds` for running requests.

        Requests that run longer are cancelled; another process, or this service after a restart, runs them again.
        """
