"""Runs one admitted request until it is charged or has failed, for a client that waits or from the job queue."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final

from lightmeter.clock import Clock
from lightmeter.media.media_info import SNIFF_BYTES, MediaKind, is_video, kind_from_name
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.backpressure import ServiceOverloaded
from lightmeter.service.analysis.job import AnalysisJob, JobCallbacks
from lightmeter.service.backends.availability import BackendAvailability
from lightmeter.service.jobs.shared_lock import SharedExclusiveLock
from lightmeter.service.metrics import Metrics
from lightmeter.service.store import requests
from lightmeter.service.store.credits import Tariff
from lightmeter.service.store.request_states import JobState
from lightmeter.service.store.requests import Attempt, AttemptResult, IsolationRequired, StoredRequest, Superseded
from lightmeter.service.store.sql_dialects import StoreError
from lightmeter.service.store.store import Store
from lightmeter.wire.constants import FEATURES, REQUEST_FAILED
from lightmeter.wire.request import AnalyzeRequest

log = logging.getLogger("lightmeter.service")

MAX_ISOLATION_WAIT_S: Final = 5.0
"""Seconds that a client waits while a suspect request runs alone; most suspects finish in less than a second."""


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """Prices, back ends, URL rules and result lifetime of the service.

    Attributes:
        tariff: Prices.
        availability: Which back ends requests can name.
        allow_private: Whether URLs may point to private hosts.
        ports: Allowed ports of public hosts.
        result_lifetime_s: Seconds after completion during which a result can be read.
    """

    tariff: Tariff
    availability: BackendAvailability
    allow_private: bool
    ports: frozenset[int]
    result_lifetime_s: float


@dataclass(slots=True)
class RunningRequest:
    """A request that runs in this process while its client waits.

    Attributes:
        task: The task that runs the request.
        can_answer: Done when the service can answer the client: the request has ended, or its asset is a video, for
            which the client must poll.
        is_video: Whether the asset is a video.
    """

    task: asyncio.Task[StoredRequest]
    can_answer: asyncio.Future[None]
    is_video: bool = False

    def mark_as_video(self) -> None:
        """Record that the asset is a video, and let the service tell the client to poll."""
        self.is_video = True
        self.release_client()

    def release_client(self) -> None:
        """Let the service answer the client."""
        if not self.can_answer.done():
            self.can_answer.set_result(None)


class Runner:
    """Runs admitted requests of the store.

    Attributes:
        policy: Prices, back ends and limits of the service.
        metrics: Receives counts.
        running: Requests by id whose clients wait for this process.
    """

    def __init__(self, store: Store, analyzer: Analyzer, policy: ServicePolicy, clock: Clock, metrics: Metrics) -> None:
        self.policy = policy
        self.running: dict[str, RunningRequest] = {}
        self._store = store
        self._analyzer = analyzer
        self._clock = clock
        self._isolation = SharedExclusiveLock()
        self.metrics = metrics

    def make_job(
        self, request: AnalyzeRequest, uploads: tuple[bytes, ...], digests: Sequence[bytes] = ()
    ) -> AnalysisJob:
        """Return the analysis job of a request; the same request gives the same job after a restart.

        An image holds the price of one picture. Any other asset holds the price of `max_frames` pictures, or of one
        picture if the request sets no maximum. A video with more frames holds their price before it is analyzed.

        Args:
            request: The request.
            uploads: Contents of uploaded files.
            digests: SHA-256 of each upload, if known.
        """
        pictures = tuple(1 if kind == "image" else request.max_frames or 1 for kind in guess_kinds(request, uploads))
        return AnalysisJob(
            request=self.policy.availability.effective_request(request),
            requested_features=frozenset(request.feature or FEATURES),
            unavailable_errors=self.policy.availability.unavailable_errors(request),
            uploads=uploads,
            digests=tuple(digests),
            names=(*request.url, *request.file_name),
            held_pictures=pictures,
            max_frames=request.max_frames,
        )

    def max_price(self, job: AnalysisJob, pictures: int | None = None) -> int:
        """Return the maximum price in credits of pictures of a job.

        Args:
            job: The job.
            pictures: Number of pictures; None: those whose price is held at the start of the job.
        """
        request, count = job.request, sum(job.held_pictures) if pictures is None else pictures
        return self.policy.tariff.max_credits(request.backend, request.feature, request.prompt, count)

    def reserve_capacity(self, job: AnalysisJob, waiting_requests: int) -> AbstractContextManager[None]:
        """Return capacity for a job that is not admitted yet, as a context manager to enter during its admission.

        Args:
            job: The job.
            waiting_requests: Requests that wait in the job queue; each counts as one picture.

        Raises:
            ServiceOverloaded: there is no capacity now.
        """
        return self._analyzer.admit(sum(job.held_pictures), waiting_requests)

    async def wait_for_isolated_request(self) -> None:
        """Wait until no suspect request runs alone.

        Raises:
            ServiceOverloaded: it still runs after `MAX_ISOLATION_WAIT_S`.
        """
        if self._isolation.is_open:
            return
        try:
            async with asyncio.timeout(MAX_ISOLATION_WAIT_S), self._isolation.shared():
                return
        except TimeoutError:
            raise ServiceOverloaded(math.ceil(MAX_ISOLATION_WAIT_S)) from None

    def start(self, attempt: Attempt, job: AnalysisJob) -> RunningRequest:
        """Start a request whose client waits.

        The task of the returned request raises Superseded if another attempt has replaced this one.
        """
        callbacks = self._callbacks(attempt, job, lambda: running.mark_as_video())  # noqa: PLW0108 (assigned below)
        task = asyncio.create_task(self._run_shared(attempt, job, callbacks))
        running = RunningRequest(task, asyncio.get_running_loop().create_future())
        self.metrics.count_job(JobState.RUNNING.value)
        self.running[attempt.request_id] = running

        def ended(_: object) -> None:
            self.running.pop(attempt.request_id, None)
            running.release_client()

        task.add_done_callback(ended)
        return running

    async def _run_shared(self, attempt: Attempt, job: AnalysisJob, callbacks: JobCallbacks) -> StoredRequest:
        async with self._isolation.shared():
            return await self._run_attempt(attempt, job, callbacks)

    async def run_acknowledged(self, request_id: str) -> None:
        """Run an acknowledged request unless it has finished; run it alone if it is suspected of causing crashes."""
        try:
            async with self._isolation.shared():
                await self._run_next_attempt(request_id, alone=False)
        except IsolationRequired as error:
            log.warning("%s", error)
            async with self._isolation.exclusive():
                await self._run_next_attempt(request_id, alone=True)

    async def _run_next_attempt(self, request_id: str, *, alone: bool) -> None:
        started = await self._store.write(lambda db: requests.start(db, request_id, self._clock.now(), alone=alone))
        if started is None:
            return
        stored, uploads = started
        self.metrics.count_job(stored.state.value)
        if stored.state is JobState.FAILED:
            log.error("request %s has failed and is not retried: %s", request_id, stored.error)
            return
        attempt, job = stored.attempt, self.make_job(stored.request, uploads)
        try:
            if attempt.number > 1:
                held, at = self.max_price(job), self._clock.now()
                await self._store.write(lambda db: requests.release_excess_hold(db, attempt, held, at))
            await self._run_attempt(attempt, job, self._callbacks(attempt, job, _ignore_video))
        except Superseded as error:
            log.warning("%s", error)
        except asyncio.CancelledError:  # a regular shutdown does not make the request a suspect
            with suppress(Superseded, StoreError):
                await self._store.write(lambda db: requests.requeue(db, attempt))
            raise

    def _callbacks(self, attempt: Attempt, job: AnalysisJob, on_video: Callable[[], None]) -> JobCallbacks:
        async def hold_more(pictures: int) -> None:
            amount, at = self.max_price(job, pictures), self._clock.now()
            await self._store.write(lambda db: requests.hold_more(db, attempt, amount, at))

        return JobCallbacks(on_video, hold_more)

    async def _run_attempt(self, attempt: Attempt, job: AnalysisJob, callbacks: JobCallbacks) -> StoredRequest:
        try:
            analysis = await self._analyzer.run(job, callbacks)
        except Superseded:
            raise
        except Exception as error:  # the client gets a general message; the log has the reason
            log.exception("request %s failed", attempt.request_id)
            result = AttemptResult(0, None, f"{REQUEST_FAILED}: {type(error).__name__}.", self._clock.now())
        else:
            result = AttemptResult(analysis.paid, analysis.result, None, self._clock.now())
        ended = await self._store.write(lambda db: requests.finish(db, attempt, result))
        self.metrics.count_job(ended.state.value)
        if ended.state is JobState.COMPLETED and ended.paid:
            self.metrics.count_charge(ended.paid)
        return ended

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for requests whose clients wait, then cancel them."""
        tasks = {running.task for running in self.running.values()}
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)


def _ignore_video() -> None:
    """Do nothing: a client that polls does not need to know that an asset is a video."""


def guess_kinds(request: AnalyzeRequest, uploads: Sequence[bytes]) -> list[MediaKind | None]:
    """Return the kind of each asset, guessed from its URL or uploaded content; None if the URL does not show it.

    Nothing is fetched.
    """
    uploaded: list[MediaKind | None] = ["video" if is_video(content[:SNIFF_BYTES]) else "image" for content in uploads]
    return [kind_from_name(url) for url in request.url] + uploaded
