"""One request from its admission to its charge, wherever it was taken up: in a web process, or from the queue."""

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
from lightmeter.service.analysis.analyzer import AnalysisJob, Analyzer, JobCallbacks
from lightmeter.service.analysis.backpressure import CapacityReservation, ServiceOverloaded
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

PATIENCE_S: Final = 5.0
"""For a suspect that is done alone; most are bystanders, and done in a moment."""


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """What this service offers, and for how much.

    Attributes:
        tariff: Prices.
        availability: Back ends.
        allow_private: Whether URLs may name private places.
        ports: Where public hosts are asked.
        result_lifetime_s: How long results can be read after completion.
    """

    tariff: Tariff
    availability: BackendAvailability
    allow_private: bool
    ports: frozenset[int]
    result_lifetime_s: float


@dataclass(slots=True)
class RunningRequest:
    """A request that is done in this process while its caller waits.

    Attributes:
        task: Does it.
        known: Done when it is known whether it can be answered now: it has ended, or it is a video.
        is_video: Whether it has turned out to be one.
    """

    task: asyncio.Task[StoredRequest]
    known: asyncio.Future[None]
    is_video: bool = False

    def mark_as_video(self) -> None:
        """It is one: its caller is told to poll."""
        self.is_video = True
        self.tell()

    def tell(self) -> None:
        """Let the caller go on."""
        if not self.known.done():
            self.known.set_result(None)


class Runner:
    """Does requests that are in the store.

    Attributes:
        terms: What is offered.
        metrics: What is counted.
        answering: What is being done in this process for callers who wait, by request.
    """

    def __init__(self, store: Store, worker: Analyzer, terms: ServicePolicy, clock: Clock, metrics: Metrics) -> None:
        self.terms = terms
        self.answering: dict[str, RunningRequest] = {}
        self._store = store
        self._worker = worker
        self._clock = clock
        self._company = SharedExclusiveLock()
        self.metrics = metrics

    def order(self, request: AnalyzeRequest, uploads: tuple[bytes, ...], digests: Sequence[bytes] = ()) -> AnalysisJob:
        """What there is to do, and what is held for it: the same for the same request, also after a restart.

        What is named like an image is held for as one picture, and so is anything when there is no limit of frames:
        when a video turns out to have more, more is held before it is looked at.

        Args:
            request: What is asked.
            uploads: Contents of uploaded files.
            digests: SHA-256 of each upload, if that is known.
        """
        pictures = tuple(1 if kind == "image" else request.max_frames or 1 for kind in kinds_of(request, uploads))
        return AnalysisJob(
            request=self.terms.availability.effective_request(request),
            asked=frozenset(request.feature or FEATURES),
            unavailable_errors=self.terms.availability.unavailable_errors(request),
            uploads=uploads,
            digests=tuple(digests),
            names=(*request.url, *request.file_name),
            held_pictures=pictures,
            max_frames=request.max_frames,
        )

    def price(self, order: AnalysisJob, pictures: int | None = None) -> int:
        """What so many pictures of an order cost at most; by default all it is held for from the start."""
        request, count = order.request, sum(order.held_pictures) if pictures is None else pictures
        return self.terms.tariff.max_credits(request.backend, request.feature, request.prompt, count)

    def room(self, order: AnalysisJob, elsewhere: int) -> CapacityReservation:
        """Room for an order that is not admitted yet, beside what waits elsewhere; enter it until it is begun.

        Raises:
            Busy: there is none now.
        """
        return self._worker.admit(sum(order.held_pictures), elsewhere)

    async def welcome(self) -> None:
        """Wait until requests whose callers wait may be in work, which they may not beside a suspect.

        Raises:
            Busy: that takes too long.
        """
        if self._company.is_open:
            return
        try:
            async with asyncio.timeout(PATIENCE_S), self._company.together():
                return
        except TimeoutError:
            raise ServiceOverloaded(math.ceil(PATIENCE_S)) from None

    def begin(self, attempt: Attempt, order: AnalysisJob) -> RunningRequest:
        """Do a request whose caller waits; its task raises Superseded if the attempt no longer counts in the end."""
        desk = self._desk(attempt, order, lambda: running.mark_as_video())  # noqa: PLW0108 (made in the next line but one)
        task = asyncio.create_task(self._answer(attempt, order, desk))
        running = RunningRequest(task, asyncio.get_running_loop().create_future())
        self.metrics.job(JobState.RUNNING.value)
        self.answering[attempt.request_id] = running

        def ended(_: object) -> None:
            self.answering.pop(attempt.request_id, None)
            running.tell()

        task.add_done_callback(ended)
        return running

    async def _answer(self, attempt: Attempt, order: AnalysisJob, desk: JobCallbacks) -> StoredRequest:
        async with self._company.together():
            return await self._attempt(attempt, order, desk)

    async def take_up(self, request_id: str) -> None:
        """Do an acknowledged request, if there is anything left to do: beside others, or alone if it is a suspect."""
        try:
            async with self._company.together():
                await self._take_up(request_id, alone=False)
        except IsolationRequired as error:
            log.warning("%s", error)
            async with self._company.alone():
                await self._take_up(request_id, alone=True)

    async def _take_up(self, request_id: str, *, alone: bool) -> None:
        begun = await self._store.write(lambda db: requests.start(db, request_id, self._clock.now(), alone=alone))
        if begun is None:
            return
        stored, uploads = begun
        self.metrics.job(stored.state.value)
        if stored.state is JobState.FAILED:
            log.error("request %s is given up: %s", request_id, stored.error)
            return
        attempt, order = stored.attempt, self.order(stored.request, uploads)
        try:
            if attempt.number > 1:
                held, at = self.price(order), self._clock.now()
                await self._store.write(lambda db: requests.release_excess_hold(db, attempt, held, at))
            await self._attempt(attempt, order, self._desk(attempt, order, _nobody))
        except Superseded as error:
            log.warning("%s", error)
        except asyncio.CancelledError:  # this process ends in good order: no request is to blame
            with suppress(Superseded, StoreError):
                await self._store.write(lambda db: requests.requeue(db, attempt))
            raise

    def _desk(self, attempt: Attempt, order: AnalysisJob, on_video: Callable[[], None]) -> JobCallbacks:
        async def hold_more(pictures: int) -> None:
            amount, at = self.price(order, pictures), self._clock.now()
            await self._store.write(lambda db: requests.hold_more(db, attempt, amount, at))

        return JobCallbacks(on_video, hold_more)

    async def _attempt(self, attempt: Attempt, order: AnalysisJob, desk: JobCallbacks) -> StoredRequest:
        try:
            done = await self._worker.do(order, desk)
        except Superseded:
            raise
        except Exception as error:  # the caller reads a failure, the operator the reason
            log.exception("request %s broke", attempt.request_id)
            finished = AttemptResult(0, None, f"{REQUEST_FAILED}: {type(error).__name__}.", self._clock.now())
        else:
            finished = AttemptResult(done.paid, done.result, None, self._clock.now())
        ended = await self._store.write(lambda db: requests.finish(db, attempt, finished))
        self.metrics.job(ended.state.value)
        if ended.state is JobState.COMPLETED and ended.paid:
            self.metrics.charged(ended.paid)
        return ended

    async def drain(self, seconds: float) -> None:
        """Let what callers wait for finish, for so long."""
        tasks = {running.task for running in self.answering.values()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _nobody() -> None:
    """Whoever polls does not care whether it is a video."""


def kinds_of(request: AnalyzeRequest, uploads: Sequence[bytes]) -> list[MediaKind | None]:
    """Of each asset, as far as URLs and contents tell before anything is fetched."""
    uploaded: list[MediaKind | None] = ["video" if _is_video(content) else "image" for content in uploads]
    return [kind_from_name(url) for url in request.url] + uploaded


def _is_video(content: bytes) -> bool:
    known = sniff(content[:SNIFF_BYTES])
    return known is not None and known[0] == "video"
