"""The queue of a service that is spread over processes and machines: procrastinate, on the PostgreSQL they share.

Why procrastinate, and not a broker of our own: jobs are rows beside ours, so a request, its hold, its ledger rows and
its job are one transaction, and an acknowledged request can never be without a job. Measured on one PostgreSQL 15 with
two cores, jobs that do nothing, one worker:

=================  =============  ===============  =====================  =========
candidate          put in a s     done a s         latency                installed
=================  =============  ===============  =====================  =========
procrastinate 3.10 1038           519 (8 at once)  p50 4 ms, p95 13 ms    1.7 MB
DBOS 3.4           907            8 (polls: 1 s)   1.0 s                  1.4 MB
=================  =============  ===============  =====================  =========

A picture takes tens of milliseconds, so hundreds of jobs a second are more than the models need, and a latency of
milliseconds is what a caller who polls can feel. DBOS does more (workflows, steps, replays) that a request of one step
has no use for.

Its workers say every few seconds that they live. Jobs of one that fell silent for `lease_s` are retried by whoever
notices; our attempt number then shuts out the silent one, should it only have been slow. What a web process does for a
caller who waits is in no queue: it bears a lease, renewed while the process lives; when that runs out, the request is
undone, or put into the queue if its caller has been told to poll.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

import procrastinate
import psycopg
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition

from lightmeter.clock import Clock
from lightmeter.service.jobs.runner import Runner
from lightmeter.service.store import requests
from lightmeter.service.store.database import Connection, StoreError
from lightmeter.service.store.postgres import psycopg_connection, with_search_path
from lightmeter.service.store.requests import NewRequest
from lightmeter.service.store.store import Store

__all__ = ["PostgresQueue"]

log = logging.getLogger("lightmeter.service")

TASK: Final = "lightmeter.analyze"
QUEUE: Final = "lightmeter"

REQUESTS_AT_ONCE: Final = 16
"""Taken up by one process: enough to have some downloading while others are looked at; the rest is for the others."""

CHECKS_A_LEASE: Final = 3
"""A process may miss one sign of life and be believed."""

LONGEST_POLL_S: Final = 5.0
"""New jobs are announced; retried ones are found by polling."""

PAUSE_S: Final = 1.0
"""Before a database that has failed is asked again."""


class PostgresQueue:
    """The shared queue, and this process's part in working it off.

    Args:
        database: `postgresql://…`.
        store: The same database, for our own tables.
        runner: Does requests.
        clock: Time.
        lease_s: How long a process may be silent before others take over its work.

    Attributes:
        waiting: Requests that wait in the queue, as of the last look.
    """

    def __init__(self, database: str, store: Store, runner: Runner, clock: Clock, lease_s: float) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock
        self._lease_s = lease_s
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self.waiting = 0
        runner.metrics.watch_depth("jobs", lambda: self.waiting)
        # Two faces of one queue: jobs are put in on our own connections, by threads; they are worked off by the loop.
        self._putting = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())
        connector = procrastinate.PsycopgConnector(conninfo=with_search_path(database), min_size=1, max_size=4)
        self._working = procrastinate.App(connector=connector)
        self._working.task(name=TASK, queue=QUEUE)(self._take_up)

    async def _take_up(self, request_id: str) -> None:
        await self._runner.take_up(request_id)

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """A job for what is acknowledged, a lease for what is done at once."""
        if new.acknowledged:
            self._put(db, new.request_id)
        else:
            db.execute(
                "UPDATE requests SET lease_until = now_s() + ? WHERE request_id = ?", (self._lease_s, new.request_id)
            )

    def _put(self, db: Connection, request_id: str) -> None:
        task = self._putting.configure_task(TASK, queue=QUEUE, connection=psycopg_connection(db), allow_unknown=True)
        job_id = task.defer(request_id=request_id)
        db.execute("UPDATE requests SET job_id = ? WHERE request_id = ?", (job_id, request_id))

    def admitted(self, request_id: str) -> None:
        """Nothing to do: the job is announced by its transaction."""

    async def open(self) -> None:
        """Begin to take up jobs, here, and to look after those of others."""
        await self._stack.enter_async_context(self._working.open_async())
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._look_after())]

    async def drain(self, seconds: float) -> None:
        """Take up no more, let what is running finish; what is cut off is done by another process."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # the worker itself ends what it cannot finish in time
            await asyncio.wait(self._tasks, timeout=seconds + self._lease_s)
        self._tasks.clear()
        await self._stack.aclose()

    async def _work(self) -> None:
        while True:
            try:
                await self._working.run_worker_async(
                    queues=[QUEUE],
                    concurrency=REQUESTS_AT_ONCE,
                    delete_jobs=DeleteJobCondition.ALWAYS,  # what became of a request stands in its own row
                    install_signal_handlers=False,
                    fetch_job_polling_interval=min(LONGEST_POLL_S, self._lease_s / CHECKS_A_LEASE),
                    update_heartbeat_interval=self._lease_s / CHECKS_A_LEASE,
                    stalled_worker_timeout=self._lease_s,
                    shutdown_graceful_timeout=self._lease_s / 2,
                )
            except (ConnectorException, psycopg.Error) as error:
                log.warning("the queue cannot be worked off: %s", error)
            await asyncio.sleep(PAUSE_S)  # it ended, which it does when the database fails: begin again

    async def _look_after(self) -> None:
        while True:
            try:
                self.waiting = await self._store.write(self._renew)
                if await self._store.write(self._may_sweep):
                    await self._sweep()
            except (ConnectorException, StoreError) as error:
                log.warning("leases cannot be looked after: %s", error)
            await asyncio.sleep(self._lease_s / CHECKS_A_LEASE)

    def _renew(self, db: Connection) -> int:
        """Say that what callers wait for here is alive; returns how many jobs wait."""
        mine = list(self._runner.answering)
        if mine:
            db.execute(
                "UPDATE requests SET lease_until = now_s() + ? WHERE request_id = ANY(?) AND lease_until IS NOT NULL",
                (self._lease_s, mine),
            )
        ((waiting,),) = db.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'")
        return int(waiting)

    def _may_sweep(self, db: Connection) -> bool:
        """Of all processes one sweeps in each period: two would retry the same job twice."""
        return bool(
            db.execute(
                "UPDATE version SET swept_at = now_s() WHERE swept_at < now_s() - ? RETURNING 1",
                (self._lease_s / CHECKS_A_LEASE,),
            )
        )

    async def _sweep(self) -> None:
        jobs = self._working.job_manager
        for job in await jobs.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=self._lease_s):
            log.warning("request %s was left by its worker", job.task_kwargs.get("request_id"))
            await jobs.retry_job(job, retry_at=datetime.fromtimestamp(0, tz=UTC))
        for change in (self._put_lost, self._undo_abandoned):
            while await self._store.write(change):
                pass

    def _put_lost(self, db: Connection) -> bool:
        """A job for one acknowledged request that has none: its process died, or was stopped in the middle."""
        rows = db.execute(
            "SELECT r.request_id FROM requests r WHERE r.state IN ('queued', 'running') AND r.acknowledged = 1 "
            "AND (r.lease_until IS NULL OR r.lease_until < now_s()) AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs j "
            "WHERE j.id = r.job_id AND j.status IN ('todo', 'doing')) LIMIT 1 FOR UPDATE OF r SKIP LOCKED"
        )
        for (request_id,) in rows:
            self._put(db, request_id)
        return bool(rows)

    def _undo_abandoned(self, db: Connection) -> bool:
        """Take back one request whose caller waited for a process that died."""
        rows = db.execute(
            "SELECT request_id FROM requests WHERE state = 'running' AND acknowledged = 0 AND lease_until < now_s() "
            "LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        for (request_id,) in rows:
            requests.delete_unacknowledged(db, request_id, self._clock.now())
        return bool(rows)
