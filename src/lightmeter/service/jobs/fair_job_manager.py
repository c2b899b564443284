"""Chooses the next job of the PostgreSQL job queue, so that accounts take turns across all processes.

The library procrastinate keeps the queue. By default, it starts jobs in the order in which they were added. Then an
account with a thousand jobs would delay all other accounts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

from lightmeter.service.analysis.fair_queue import TOTAL_TO_ACCOUNT_LIMIT_RATIO
from lightmeter.service.jobs.job_queue import REQUESTS_AT_ONCE

if TYPE_CHECKING:
    from procrastinate.manager import NotificationCallback

_FETCH_JOB: Final = """
    WITH unfinished AS (SELECT job_id, account_id FROM requests WHERE state IN ('queued', 'running')),
    busy AS (
        SELECT u.account_id, count(*) AS jobs, count(*) FILTER (WHERE j.worker_id = %(worker_id)s) AS jobs_here
        FROM procrastinate_jobs j JOIN unfinished u ON u.job_id = j.id WHERE j.status = 'doing' GROUP BY u.account_id
    ),
    next_job AS (
        SELECT j.id
        FROM procrastinate_jobs j LEFT JOIN unfinished u ON u.job_id = j.id LEFT JOIN busy b USING (account_id)
        WHERE j.status = 'todo' AND j.queue_name = ANY(%(queues)s::varchar[])
            AND (j.scheduled_at IS NULL OR j.scheduled_at <= now())
            AND coalesce(b.jobs_here, 0) < %(concurrency)s - (SELECT coalesce(sum(jobs_here), 0) FROM busy)
        ORDER BY coalesce(b.jobs, 0), j.id LIMIT 1
        FOR UPDATE OF j SKIP LOCKED
    )
    UPDATE procrastinate_jobs j SET status = 'doing', worker_id = %(worker_id)s FROM next_job
    WHERE j.id = next_job.id
    RETURNING j.id, j.status, j.task_name, j.priority, j.lock, j.queueing_lock, j.args, j.scheduled_at, j.queue_name,
        j.attempts, j.worker_id
"""
"""Starts the oldest job of the account that has the fewest running jobs.

A worker process has a fixed number of slots for jobs. It starts another job of an account only if it has more free
slots than running jobs of this account. So slow jobs of one account leave slots to other accounts. A job whose request
has already ended counts as a job of an account without running jobs, because it ends at once.
"""


class FairJobManager(JobManager):
    """Job manager of the library procrastinate that starts a job of the account with the fewest running jobs."""

    _on_notification: NotificationCallback | None = None

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        """Start the oldest job of the account with the fewest running jobs, and return it; None: no job may start.

        A worker process has a fixed number of slots for jobs. It starts a job of an account only if it has more free
        slots than running jobs of this account.

        `queues` are the names of the queues that jobs are taken from; `worker_id` is procrastinate's id of this worker.
        """
        rows = await self.connector.execute_query_all_async(
            _FETCH_JOB,
            queues=list(queues or ()),
            worker_id=worker_id,
            concurrency=TOTAL_TO_ACCOUNT_LIMIT_RATIO * REQUESTS_AT_ONCE,
        )
        return Job.from_row(rows[0]) if rows else None

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        """Wait for new jobs, and call `on_notification` for each of them, which wakes the worker.

        Run until cancelled, or return at once if listening is impossible. `finish_job` also calls `on_notification`.
        `queues` are the names of the queues to listen to; None: all queues.
        """
        self._on_notification = on_notification
        await super().listen_for_jobs(on_notification=on_notification, queues=queues)

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:  # noqa: FBT001 (procrastinate's signature)
        """Store that a job has ended, and wake the worker: it may now start another job of the same account.

        `status` says how the job has ended. If `delete_job` is true, the job is deleted from the queue's table.
        """
        await super().finish_job(job, status, delete_job)
        if self._on_notification is not None:
            await self._on_notification(channel="", notification={"type": "job_inserted", "job_id": job.id or 0})
