"""The job queue of services that share a PostgreSQL database, on any number of machines.

The library procrastinate stores jobs as rows in that database. So one transaction writes a request, its ledger rows
and its job, and every request whose client polls has a job. The queue takes little time compared with the analysis of a
picture, which takes tens of milliseconds: on two cores, 519 empty jobs a second ran, with a median delay of 4 ms.

Each worker stores a heartbeat every few seconds. When a worker has stored no heartbeat for `lease_s` seconds, another
process retries its jobs. Each retry has a new attempt number. So a worker that was only slow can no longer finish the
request.

Accounts take turns across all processes: a free process gets a job of the account that has the fewest running jobs.

A request whose client waits for the answer has no job. It has a lease: the time until which its process owns it. The
process extends the lease again and again. If the lease expires, another process takes over: it adds a job for the
request if the client already polls, and deletes the request otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import procrastinate
import psycopg
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition
from psycopg_pool import AsyncConnectionPool

from lightmeter.clock import Clock
from lightmeter.service.analysis.fair_queue import TOTAL_TO_ACCOUNT_LIMIT_RATIO
from lightmeter.service.jobs.fair_job_manager import FairJobManager
from lightmeter.service.jobs.job_queue import REQUESTS_AT_ONCE, JobQueue
from lightmeter.service.jobs.runner import Runner
from lightmeter.service.store import requests
from lightmeter.service.store.postgres import (
    CONNECTION_ARGUMENTS,
    SELECT_SCHEMA,
    connection_string,
    psycopg_connection,
)
from lightmeter.service.store.requests import NewRequest
from lightmeter.service.store.sql_dialects import Connection, StoreError
from lightmeter.service.store.store import Store

log = logging.getLogger("lightmeter.service")

TASK: Final = "lightmeter.analyze"
QUEUE: Final = "lightmeter"

RENEWALS_PER_LEASE: Final = 3
"""A process extends each lease this many times in `lease_s` seconds. So it keeps a lease if it misses one extension."""

MAX_POLL_INTERVAL_S: Final = 5.0
"""Maximum seconds between two queries for jobs to retry. New jobs start earlier: PostgreSQL's NOTIFY announces them,
unless a pooler such as PgBouncer in transaction mode holds back its messages."""

RETRY_DELAY_S: Final = 1.0
"""Seconds from a database error, which ends the worker, to the restart of the worker."""


class _SchemaPool(AsyncConnectionPool):
    """Pool of connections to PostgreSQL; each transaction selects the schema of the tables."""

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[psycopg.AsyncConnection]:  # noqa: ASYNC109 (psycopg's signature)
        async with super().connection(timeout) as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            await connection.execute(SELECT_SCHEMA)
            yield connection


class PostgresQueue(JobQueue):
    """Job queue in PostgreSQL that several processes share. Each process with a `PostgresQueue` runs requests from it.

    Args:
        database: URL of the database, `postgresql://…`.
        store: The store in the same database.
        runner: Analyzes a request and stores its result.
        clock: Source of the time.
        lease_s: If a process sends no heartbeat for this number of seconds, other processes take over its requests.

    Attributes:
        waiting_requests: Account number → number of its requests that wait in the queue. It is updated about three
            times in each `lease_s` seconds.
    """

    waiting_requests: Mapping[int, int] = {}

    def __init__(self, database: str, store: Store, runner: Runner, clock: Clock, lease_s: float) -> None:
        super().__init__(store, runner, clock)
        self._lease_s = lease_s
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        # Two apps on one queue: store threads add jobs on the connections of the store, and the event loop runs jobs.
        self._enqueue_app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())
        connector = procrastinate.PsycopgConnector(
            conninfo=connection_string(database),
            kwargs=CONNECTION_ARGUMENTS,
            pool_factory=_SchemaPool,
            min_size=1,
            max_size=4,
        )
        self._worker_app = procrastinate.App(connector=connector)
        self._worker_app.job_manager = FairJobManager(connector)
        self._worker_app.task(name=TASK, queue=QUEUE)(runner.run_polled)

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """Add a job for the request `new` if its client polls.

        If its client waits for the answer, add no job, but store a lease: the time until which this process owns the
        request.
        """
        if new.client_polls:
            self._add_job(db, new.request_id)
        else:
            db.execute(
                "UPDATE requests SET lease_until = now_s() + ? WHERE request_id = ?", (self._lease_s, new.request_id)
            )

    def _add_job(self, db: Connection, request_id: str) -> None:
        task = self._enqueue_app.configure_task(
            TASK, queue=QUEUE, connection=psycopg_connection(db), allow_unknown=True
        )
        try:
            job_id = task.defer(request_id=request_id)
        except ConnectorException as error:
            if isinstance(error.__cause__, psycopg.Error):  # the store translates it, for example if the disk is full
                raise error.__cause__ from None
            raise
        db.execute("UPDATE requests SET job_id = ? WHERE request_id = ?", (job_id, request_id))

    async def open(self) -> None:
        """Start to run jobs, to renew the leases of this process, and to take over requests of dead processes."""
        await self._stack.enter_async_context(self._worker_app.open_async())
        self._tasks = [asyncio.create_task(self._run_worker()), asyncio.create_task(self._renew_leases())]

    async def drain(self, seconds: float) -> None:
        """Start no more jobs, and wait until the running jobs have ended or were cancelled.

        Jobs that still run `lease_s` / 2 seconds after this call are cancelled, whatever `seconds` is. Other processes
        run them again. `seconds` only extends the time that a cancelled job may take to stop: the wait ends at the
        latest `seconds` + `lease_s` seconds after this call.
        """
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # the worker cancels what it cannot finish in time
            await asyncio.wait(self._tasks, timeout=seconds + self._lease_s)
        self._tasks.clear()
        await self._stack.aclose()

    async def _run_worker(self) -> None:
        while True:
            try:
                await self._worker_app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=TOTAL_TO_ACCOUNT_LIMIT_RATIO * REQUESTS_AT_ONCE,
                    delete_jobs=DeleteJobCondition.ALWAYS,  # the row of the request has its outcome
                    install_signal_handlers=False,
                    fetch_job_polling_interval=min(MAX_POLL_INTERVAL_S, self._lease_s / RENEWALS_PER_LEASE),
                    update_heartbeat_interval=self._lease_s / RENEWALS_PER_LEASE,
                    stalled_worker_timeout=self._lease_s,
                    shutdown_graceful_timeout=self._lease_s / 2,
                )
            except (ConnectorException, psycopg.Error) as error:
                log.warning("the job queue has failed: %s", error)
            await asyncio.sleep(RETRY_DELAY_S)  # the worker ends when the database fails: start it again

    async def _renew_leases(self) -> None:
        while True:
            try:
                self.waiting_requests = await self._store.write(self._renew_client_leases)
                if await self._store.write(self._claim_recovery):
                    await self._recover()
            except (ConnectorException, StoreError) as error:
                log.warning("leases cannot be renewed: %s", error)
            await asyncio.sleep(self._lease_s / RENEWALS_PER_LEASE)

    def _renew_client_leases(self, db: Connection) -> dict[int, int]:
        """Extend the leases of this process, for the requests that it runs while their clients wait for the answer.

        Return the new value of `waiting_requests`: account number → number of its jobs that wait in the queue.
        """
        request_ids = list(self._runner.running)
        if request_ids:
            db.execute(
                "UPDATE requests SET lease_until = now_s() + ? WHERE request_id = ANY(?) AND lease_until IS NOT NULL",
                (self._lease_s, request_ids),
            )
        rows = db.execute(
            "SELECT r.account_id, count(*) FROM procrastinate_jobs j JOIN requests r ON r.job_id = j.id "
            "WHERE j.status = 'todo' AND r.state IN ('queued', 'running') GROUP BY r.account_id"
        )
        return dict(rows)

    def _claim_recovery(self, db: Connection) -> bool:
        """Return whether this process must now look for requests of dead processes, to take them over.

        It must if no process has done so in the last `lease_s` / 3 seconds. If it must, store the current time, so that
        no other process does the same.
        """
        sql = "UPDATE version SET swept_at = now_s() WHERE swept_at < now_s() - ? RETURNING 1"
        return bool(db.execute(sql, (self._lease_s / RENEWALS_PER_LEASE,)))

    async def _recover(self) -> None:
        jobs = self._worker_app.job_manager
        for job in await jobs.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=self._lease_s):
            log.warning("the worker of request %s has stopped; retrying", job.task_kwargs.get("request_id"))
            try:
                await jobs.retry_job(job, retry_at=datetime.fromtimestamp(0, tz=UTC))
            except ConnectorException as error:  # the others must not wait for it
                log.error("the job of request %s cannot be retried: %s", job.task_kwargs.get("request_id"), error)  # noqa: TRY400 (no bug)
        for change in (self._requeue_lost, self._delete_abandoned):
            while await self._store.write(change):
                pass

    def _requeue_lost(self, db: Connection) -> bool:
        """Find one request whose client polls, whose process has died, and which has no job; add a job for it.

        Return whether there was one.
        """
        rows = db.execute(
            "SELECT r.request_id FROM requests r WHERE r.state IN ('queued', 'running') AND r.acknowledged = 1 "
            "AND (r.lease_until IS NULL OR r.lease_until < now_s()) AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs j "
            "WHERE j.id = r.job_id AND j.status IN ('todo', 'doing')) LIMIT 1 FOR UPDATE OF r SKIP LOCKED"
        )
        for (request_id,) in rows:
            self._add_job(db, request_id)
        return bool(rows)

    def _delete_abandoned(self, db: Connection) -> bool:
        """Find one request whose client waited for the answer, and whose process has died; delete the request.

        Return whether there was one.
        """
        rows = db.execute(
            "SELECT request_id FROM requests WHERE state = 'running' AND acknowledged = 0 AND lease_until < now_s() "
            "LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        for (request_id,) in rows:
            requests.delete_unless_polled(db, request_id, self._clock.now())
        return bool(rows)
