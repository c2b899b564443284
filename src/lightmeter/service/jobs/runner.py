"""Runs stored requests until they are charged or have failed.

A request whose client waits for the answer starts at once. A request whose client polls comes from the job queue.
"""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lightmeter import telemetry
from lightmeter.clock import Clock
from lightmeter.media.media_info import SNIFF_BYTES, MediaKind, is_video, kind_from_name
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.backpressure import ServiceOverloaded
from lightmeter.service.analysis.job import AnalysisJob, AnalysisResult
from lightmeter.service.ingest.asset_content import TempFolderError
from lightmeter.service.jobs.readers_writer_lock import ReadersWriterLock
from lightmeter.service.jobs.service_policy import ServicePolicy
from lightmeter.service.metrics import Metrics
from lightmeter.service.store import requests, unfinished_requests
from lightmeter.service.store.request_states import FINISHED, JobState
from lightmeter.service.store.requests import Attempt, AttemptResult, IsolationRequired, StoredRequest, Superseded
from lightmeter.service.store.sql_dialects import Connection, StoreError
from lightmeter.service.store.store import Store
from lightmeter.wire.constants import FEATURES, REQUEST_FAILED
from lightmeter.wire.request import AnalyzeRequest

log = logging.getLogger("lightmeter.service")

T = TypeVar("T")

STORE_RETRY_S: Final = 1.0
"""Seconds between attempts to write to a database that fails, for example because its disk is full."""

CANCEL_CHECK_INTERVAL_S: Final = 1.0
"""Seconds between checks whether the operator has cancelled requests that this process runs."""

MAX_ISOLATION_WAIT_S: Final = 5.0
"""Maximum seconds that a new request waits while another request runs alone. Then it is refused with status 503.

A request runs alone if it may crash the process. Most of these requests take less than a second.
"""


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """A request that runs in this process while its client waits.

    Attributes:
        task: The task that runs the request.
        must_poll: Future, done when the service can answer the client. True: an asset is a video, or the request takes
            too long, so the client gets the request id and must poll. False: the request has ended.
    """

    task: asyncio.Task[StoredRequest]
    must_poll: asyncio.Future[bool]


class Runner:
    """Runs stored requests: analyzes their images and videos, and stores the result and the charge.

    Attributes:
        policy: Rules by which the service accepts and prices requests, and keeps their results.
        metrics: Counts jobs and charges.
        running: Request id → request that this process runs while its client waits for the answer.
    """

    def __init__(self, store: Store, analyzer: Analyzer, policy: ServicePolicy, clock: Clock, metrics: Metrics) -> None:
        self.policy = policy
        self.metrics = metrics
        self.running: dict[str, RunningRequest] = {}
        self._store = store
        self._analyzer = analyzer
        self._clock = clock
        self._isolation = ReadersWriterLock()
        self._deletions: set[asyncio.Task[None]] = set()
        self._analyses: dict[str, asyncio.Task[AnalysisResult]] = {}

    def make_job(
        self, account_id: int, request: AnalyzeRequest, uploads: tuple[bytes, ...], digests: Sequence[bytes] = ()
    ) -> AnalysisJob:
        """Prepare a request as a job for `Analyzer.run`. The same request gives the same job after a restart.

        Args:
            account_id: Number of the account that pays.
            request: The request.
            uploads: Contents of uploaded files.
            digests: SHA-256 of each upload. Empty: the digests were not computed yet.
        """
        return AnalysisJob(
            request=self.policy.availability.effective_request(request),
            requested_features=frozenset(request.feature or FEATURES),
            unavailable_errors=self.policy.availability.unavailable_errors(request),
            uploads=uploads,
            digests=tuple(digests),
            names=(*request.url, *request.file_name),
            account_id=account_id,
        )

    async def count_pictures(self, job: AnalysisJob) -> int:
        """Return how many images and video frames a job has. A video of a URL counts as one until it is fetched.

        Raises:
            TempFolderError: an uploaded video cannot be stored in the temporary folder.
        """
        return await self._analyzer.count_pictures(job)

    def credits_to_hold(self, job: AnalysisJob, pictures: int) -> int:
        """Return the maximum price, in credits, of `pictures` images and video frames of a job, to reserve it.

        If the price is 0, return one for each: so no account can queue more work than it has credits.
        """
        request = job.request
        return self.policy.tariff.max_credits(request.backend, request.feature, request.prompt, pictures) or pictures

    def reserve_capacity(
        self, account_id: int, pictures: int, waiting_requests: Mapping[int, int]
    ) -> AbstractContextManager[None]:
        """Return a context manager. In its `with` block, a new request's images and video frames count as unfinished.

        The caller stores the request in this block.

        Args:
            account_id: Account that sent the request.
            pictures: Number of images and video frames.
            waiting_requests: Account number → number of its requests in the job queue; each counts as one image.

        Raises:
            ServiceOverloaded: the account, or all accounts together, have too many unfinished images and video frames.
        """
        return self._analyzer.admit(account_id, pictures, waiting_requests)

    async def wait_for_isolated_request(self) -> None:
        """Wait until no request runs alone. While a request that may crash this process runs alone, no other may start.

        Raises:
            ServiceOverloaded: the request that runs alone has not ended after `MAX_ISOLATION_WAIT_S`.
        """
        if self._isolation.is_open:
            return
        try:
            async with asyncio.timeout(MAX_ISOLATION_WAIT_S), self._isolation.shared():
                return
        except TimeoutError:
            raise ServiceOverloaded(math.ceil(MAX_ISOLATION_WAIT_S)) from None

    def start(self, attempt: Attempt, job: AnalysisJob) -> RunningRequest:
        """Start to run the request `job`, whose client waits for the answer. `attempt` identifies this run.

        The `task` of the returned object raises Superseded if another process has taken over or deleted the request, or
        if a shutdown has stopped it. Then the request was deleted, and nothing is charged.
        """
        must_poll: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answer_client(*, with_video: bool) -> None:
            if not must_poll.done():
                must_poll.set_result(with_video)

        async def run() -> StoredRequest:
            try:
                async with self._isolation.shared():
                    return await self._run_attempt(attempt, job, lambda: answer_client(with_video=True), must_poll.done)
            except (Superseded, asyncio.CancelledError):  # ended by the operator, or stopped by a shutdown
                stored = await self._leave(attempt, job.account_id)
                if stored.state not in FINISHED:
                    raise
                return stored

        def ended(_: object) -> None:
            self.running.pop(attempt.request_id, None)
            answer_client(with_video=False)

        running = RunningRequest(asyncio.create_task(run()), must_poll)
        self.metrics.count_job_state(JobState.RUNNING.value)
        self.running[attempt.request_id] = running
        running.task.add_done_callback(ended)
        return running

    async def _leave(self, attempt: Attempt, account_id: int) -> StoredRequest:
        """Return a request that this process no longer runs. If it has not ended and its client waits, delete it first.

        If it has not ended and its client polls, it is queued: another process, or this service after a restart, runs
        it again.

        Raises:
            Superseded: the request was deleted, or another attempt has started.
        """
        at = self._clock.now()

        def change(db: Connection) -> StoredRequest | None:
            requests.delete_unless_polled(db, attempt.request_id, at)
            stored = requests.find(db, attempt.request_id, account_id, 0)
            if stored is not None and stored.state not in FINISHED:
                requests.requeue(db, attempt)
            return stored

        stored = await self._store.write(change)
        if stored is None:
            raise Superseded(f"Request {attempt.request_id} was deleted.") from None
        return stored

    async def run_polled(self, request_id: str) -> None:
        """Run a request whose client polls. Do nothing if the request has already ended.

        If the service has crashed repeatedly while it ran this request, the request runs alone: this process runs no
        other request at the same time.
        """
        try:
            async with self._isolation.shared():
                await self._run_next_attempt(request_id, alone=False)
        except IsolationRequired as error:
            log.warning("%s", error)
            async with self._isolation.exclusive():
                await self._run_next_attempt(request_id, alone=True)

    async def _run_next_attempt(self, request_id: str, *, alone: bool) -> None:
        earlier: Attempt | None = None

        def start(db: Connection) -> tuple[StoredRequest, tuple[bytes, ...]] | None:
            nonlocal earlier
            if earlier is not None:  # an earlier try, perhaps committed although it failed: that is no crash
                with suppress(Superseded):
                    requests.requeue(db, earlier)
            started = requests.start(db, request_id, self._clock.now(), alone=alone)
            if started is not None and started[0].state is JobState.RUNNING:
                earlier = started[0].attempt
            return started

        started = await self._write_patiently(start)
        if started is None:
            return
        stored, uploads = started
        self.metrics.count_job_state(stored.state.value)
        if stored.state is JobState.FAILED:
            log.error("request %s has failed and is not retried: %s", request_id, stored.error)
            return
        attempt, job = stored.attempt, self.make_job(stored.account_id, stored.request, uploads)
        try:
            await self._run_attempt(attempt, job)
        except Superseded as error:
            log.warning("%s", error)
        except asyncio.CancelledError:  # a regular shutdown is no crash
            with suppress(Superseded, StoreError):
                await self._store.write(lambda db: requests.requeue(db, attempt))
            raise

    async def _run_attempt(
        self,
        attempt: Attempt,
        job: AnalysisJob,
        on_video: Callable[[], None] = lambda: None,
        client_polls: Callable[[], bool] = lambda: True,
    ) -> StoredRequest:
        async def hold(pictures: int) -> None:  # only for videos, whose clients poll
            total, at = self.credits_to_hold(job, pictures), self._clock.now()
            await self._write_patiently(lambda db: requests.raise_hold(db, attempt, total, at))

        try:
            with _job_span(attempt, job) as span:
                analysis = await self._analyze(attempt, self._analyzer.run(job, hold, on_video))
                span.set({"lightmeter.credits_paid": analysis.charge})
        except Superseded:
            raise
        except TempFolderError as error:
            log.error("request %s: %s: %s", attempt.request_id, error, tempfile.gettempdir())  # noqa: TRY400 (no bug)
            if not client_polls():
                self._delete_later(attempt.request_id)
                raise
            result = AttemptResult(0, None, f"{REQUEST_FAILED}: {error}.", self._clock.now())
        except Exception as error:  # the client gets a general message; the log has the reason
            log.exception("request %s failed", attempt.request_id)
            result = AttemptResult(0, None, f"{REQUEST_FAILED}: {type(error).__name__}.", self._clock.now())
        else:
            result = AttemptResult(analysis.charge, analysis.results_json, None, self._clock.now())
        ended = await self._finish(attempt, result, client_polls)
        self.metrics.count_job_state(ended.state.value)
        if ended.state is JobState.COMPLETED and ended.paid:
            self.metrics.count_charge(ended.paid)
        return ended

    async def _finish(self, attempt: Attempt, result: AttemptResult, client_polls: Callable[[], bool]) -> StoredRequest:
        """Store the result of an attempt, and charge the account; return the finished request.

        If the database fails, the next step depends on the client. If the client polls, try again until the result is
        stored. If the client waits for the answer, raise StoreError, and delete the request later.
        """
        if not client_polls():
            try:
                return await self._store.write(lambda db: requests.finish(db, attempt, result))
            except StoreError:
                if not client_polls():  # in the meantime, it may have waited too long
                    self._delete_later(attempt.request_id)
                    raise
        return await self._write_patiently(lambda db: requests.finish(db, attempt, result))

    async def _write_patiently(self, change: Callable[[Connection], T]) -> T:
        """Return the result of `change`, run in a transaction.

        While the database fails (disk full, server down), try again every second. Other errors go to the caller. A try
        may have been committed although the database reported an error, so `change` must allow for that.

        Raises:
            Superseded: `change` raised it: the attempt is no longer current, or an earlier try has ended the request.
        """
        is_failing = False
        while True:
            try:
                return await self._store.write(change)
            except StoreError as error:
                if not is_failing:
                    log.error("a change is not stored yet, and is tried again: %s", error)  # noqa: TRY400 (no bug)
                is_failing = True
                await asyncio.sleep(STORE_RETRY_S)

    def _delete_later(self, request_id: str) -> None:
        """Start a task that deletes a request whose client got an error. The task retries while the database fails.

        Without the deletion, the credits of the request would stay reserved until the next start of the service
        (SQLite), or for about `lease_s` seconds (PostgreSQL).
        """
        at = self._clock.now()
        task = asyncio.create_task(self._write_patiently(lambda db: requests.delete_unless_polled(db, request_id, at)))
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _analyze(self, attempt: Attempt, analysis: Coroutine[Any, Any, AnalysisResult]) -> AnalysisResult:
        """Run `analysis`, the analysis of a request, so that `stop_cancelled` can stop it; return its result.

        Raises:
            Superseded: the operator has cancelled the request.
        """
        task = self._analyses[attempt.request_id] = asyncio.create_task(analysis)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():  # a shutdown
                raise
            raise Superseded(f"Request {attempt.request_id} was cancelled by the operator.") from None
        finally:
            if self._analyses.get(attempt.request_id) is task:
                del self._analyses[attempt.request_id]

    async def stop_cancelled(self) -> None:
        """Check every second which requests of this process the operator has cancelled, and stop them; never return."""
        while True:
            await asyncio.sleep(CANCEL_CHECK_INTERVAL_S)
            request_ids = list(self._analyses)
            if not request_ids:
                continue
            try:
                found = await self._store.read(lambda db: unfinished_requests.find_cancelled(db, request_ids))  # noqa: B023 (awaited here)
            except StoreError as error:
                log.warning("cannot read which requests were cancelled: %s", error)
                continue
            for request_id in found:
                if request_id in self._analyses:
                    self._analyses[request_id].cancel()

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` until the running requests with waiting clients have ended, then cancel the rest."""
        await finish_or_cancel([*(running.task for running in self.running.values()), *self._deletions], seconds)


async def finish_or_cancel(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait up to `seconds` for the tasks to end, then cancel those that have not ended, and wait for them."""
    if tasks:
        _, unfinished = await asyncio.wait(tasks, timeout=seconds)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)


def guess_kinds(request: AnalyzeRequest, uploads: Sequence[bytes]) -> list[MediaKind | None]:
    """Return the kind (image or video) of each URL of a request, and then of each upload.

    The kind is guessed from the text of the URL, or from the first bytes of the upload. Nothing is fetched. If a URL
    does not show the kind, the kind is None.
    """
    uploaded: list[MediaKind | None] = ["video" if is_video(content[:SNIFF_BYTES]) else "image" for content in uploads]
    return [kind_from_name(url) for url in request.url] + uploaded


def _job_span(attempt: Attempt, job: AnalysisJob) -> AbstractContextManager[telemetry.TelemetrySpan]:
    """Return the OpenTelemetry span of an attempt to run the request `job`, a child of the client's HTTP request."""
    attributes: telemetry.Attributes = {
        "lightmeter.request_id": attempt.request_id,
        "lightmeter.attempt": attempt.number,
        "lightmeter.assets": len(job.names),
        "lightmeter.backends": tuple(job.request.backend),
        "lightmeter.features": tuple(job.request.feature),
    }
    return telemetry.span("lightmeter.job", attributes, parent=telemetry.pop_trace_parent(attempt.request_id))
