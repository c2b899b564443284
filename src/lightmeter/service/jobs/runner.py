"""Runs one admitted request to its charge: for a client that waits, or from the queue."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lightmeter.clock import Clock
from lightmeter.media.media_info import SNIFF_BYTES, MediaKind, kind_from_name, sniff
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.vocabulary import FEATURES, REQUEST_FAILED
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.backpressure import CapacityReservation, ServiceOverloaded
from lightmeter.service.analysis.job import AnalysisJob, JobCallbacks
from lightmeter.service.backends.availability import BackendAvailability
from lightmeter.service.jobs.shared_lock import SharedExclusiveLock
from lightmeter.service.metrics import Metrics
from lightmeter.service.store import requests
from lightmeter.service.store.credits import Tariff
from lightmeter.service.store.database import StoreError
from lightmeter.service.store.request_states import JobState
from lightmeter.service.store.requests import Attempt, AttemptResult, IsolationRequired, StoredRequest, Superseded
from lightmeter.service.store.store import Store

__all__ = ["Runner", "RunningRequest", "ServicePolicy", "kinds_of"]

log = logging.getLogger("lightmeter.service")

MAX_ISOLATION_WAIT_S: Final = 5.0
"""A client waits so long for an isolated suspect; most suspects are harmless, and finish in a moment."""


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """What the service offers and allows.

    Attributes:
        tariff: Prices.
        availability: Available back ends.
        allow_private: Whether URLs may have private hosts.
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
        task: Runs the request.
        can_answer: Done when the client can be answered: the request has ended, or is a video that is polled for.
        is_video: Whether its asset has turned out to be a video.
    """

    task: asyncio.Task[StoredRequest]
    can_answer: asyncio.Future[None]
    is_video: bool = False

    def mark_as_video(self) -> None:
        """Record that the asset is a video, and let the client be told to poll."""
        self.is_video = True
        self.release_client()

    def release_client(self) -> None:
        """Let the client be answered."""
        if not self.can_answer.done():
            self.can_answer.set_result(None)


class Runner:
    """Runs requests that are in the store.

    Attributes:
        policy: What the service offers.
        metrics: Receives counts.
        running: Requests whose clients wait in this process, by id.
    """

    def __init__(self, store: Store, analyzer: Analyzer, policy: ServicePolicy, clock: Clock, metrics: Metrics) -> None:
        self.policy = policy
        self.running: dict[str, RunningRequest] = {}
        self._store = store
        self._analyzer = analyzer
        self._clock = clock
        self._isolation = SharedExclusiveLock()
        self.metrics = metrics

    def job(self, request: AnalyzeRequest, uploads: tuple[bytes, ...], digests: Sequence[bytes] = ()) -> AnalysisJob:
        """Return the job of a request, which is the same after a restart.

        The price of one picture is held for an asset whose name is that of an image, and for any asset if frames are
        not limited. More is held when a video turns out to have more frames, before it is analyzed.

        Args:
            request: The request.
            uploads: Contents of uploaded files.
            digests: SHA-256 of each upload, if known.
        """
        pictures = tuple(1 if kind == "image" else request.max_frames or 1 for kind in kinds_of(request, uploads))
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
        """Return the maximum price of some pictures of a job; by default of those that are held at its start."""
        request, count = job.request, sum(job.held_pictures) if pictures is None else pictures
        return self.policy.tariff.max_credits(request.backend, request.feature, request.prompt, count)

    def capacity(self, job: AnalysisJob, elsewhere: int) -> CapacityReservation:
        """Return capacity for a job that is not admitted yet, with `elsewhere` pictures in queues; enter it meanwhile.

        Raises:
            ServiceOverloaded: there is no capacity now.
        """
        return self._analyzer.admit(sum(job.held_pictures), elsewhere)

    async def wait_until_accepting(self) -> None:
        """Wait while a suspect request runs in isolation.

        Raises:
            ServiceOverloaded: that takes too long.
        """
        if self._isolation.is_open:
            return
        try:
            async with asyncio.timeout(MAX_ISOLATION_WAIT_S), self._isolation.shared():
                return
        except TimeoutError:
            raise ServiceOverloaded(math.ceil(MAX_ISOLATION_WAIT_S)) from None

    def start(self, attempt: Attempt, job: AnalysisJob) -> RunningRequest:
        """Start a request whose client waits; its task raises Superseded if another attempt has replaced this one."""
        callbacks = self._callbacks(attempt, job, lambda: running.mark_as_video())  # noqa: PLW0108 (assigned below)
        task = asyncio.create_task(self._run_shared(attempt, job, callbacks))
        running = RunningRequest(task, asyncio.get_running_loop().create_future())
        self.metrics.job(JobState.RUNNING.value)
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
        """Run an acknowledged request, unless it is finished: with others, or isolated if it is a suspect."""
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
        self.metrics.job(stored.state.value)
        if stored.state is JobState.FAILED:
            log.error("request %s is given up: %s", request_id, stored.error)
            return
        attempt, job = stored.attempt, self.job(stored.request, uploads)
        try:
            if attempt.number > 1:
                held, at = self.max_price(job), self._clock.now()
                await self._store.write(lambda db: requests.release_excess_hold(db, attempt, held, at))
            await self._run_attempt(attempt, job, self._callbacks(attempt, job, _ignore))
        except Superseded as error:
            log.warning("%s", error)
        except asyncio.CancelledError:  # this process shuts down in order, so the request is no suspect
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
        except Exception as error:  # the client gets a general message, the log the reason
            log.exception("request %s failed", attempt.request_id)
            result = AttemptResult(0, None, f"{REQUEST_FAILED}: {type(error).__name__}.", self._clock.now())
        else:
            result = AttemptResult(analysis.paid, analysis.result, None, self._clock.now())
        ended = await self._store.write(lambda db: requests.finish(db, attempt, result))
        self.metrics.job(ended.state.value)
        if ended.state is JobState.COMPLETED and ended.paid:
            self.metrics.charged(ended.paid)
        return ended

    async def drain(self, seconds: float) -> None:
        """Let requests whose clients wait finish for some seconds, then cancel them."""
        tasks = {running.task for running in self.running.values()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _ignore() -> None:
    """Do nothing: a client that polls need not be told that an asset is a video."""


def kinds_of(request: AnalyzeRequest, uploads: Sequence[bytes]) -> list[MediaKind | None]:
    """Return the kind of each asset, as far as its URL or content tells before anything is fetched."""
    uploaded: list[MediaKind | None] = ["video" if _is_video(content) else "image" for content in uploads]
    return [kind_from_name(url) for url in request.url] + uploaded


def _is_video(content: bytes) -> bool:
    media_type = sniff(content[:SNIFF_BYTES])
    return media_type is not None and media_type[0] == "video"
