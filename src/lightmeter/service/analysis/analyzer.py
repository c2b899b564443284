"""The work behind a request: fetch, decode, look, price. A bad asset is a sentence in `all.errors`, not a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson

from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import BackendError, BrokenMedia, FetchError, MediaError, OutOfCredits
from lightmeter.media.image_transforms import InputTransform
from lightmeter.media.media_info import sniff
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.response import Entries
from lightmeter.service.analysis.backpressure import (
    MAX_PENDING_PICTURES,
    AdmissionController,
    CapacityReservation,
    ServiceOverloaded,
)
from lightmeter.service.analysis.coordinates import in_asset_pixels
from lightmeter.service.analysis.fair_queue import FairSemaphore
from lightmeter.service.analysis.inference_queue import InferenceParams, InferenceQueues
from lightmeter.service.analysis.merge import AssetFindings, as_json, compose_entries, joined, merged, metadata_of, only
from lightmeter.service.analysis.result_cache import DEFAULT_CACHE_BYTES, ContentKey, ResultCache
from lightmeter.service.backends.base import AnalysisOptions, Backend, ComposingBackend, traits_of
from lightmeter.service.ingest.decode import DecodedPictures, DecodingLimits, MediaDecoder
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.ingest.payload import AssetPayload
from lightmeter.service.metrics import Metrics
from lightmeter.service.store.credits import Tariff

__all__ = ["AnalysisJob", "AnalysisResult", "Analyzer", "AnalyzerLimits", "JobCallbacks", "ServiceOverloaded"]

ASSETS_IN_HAND: Final = 64
"""Assets being fetched, or fetched and waiting, over all requests: what bounds connections and temporary files."""

IMAGES_A_VIDEO: Final = 4
"""Images at once for each video at once. What is left of a decoded image is small, and what is done for several
requests in a row costs less than what is done for each by itself: 19.0 ms a picture with 2 images at once on one core,
18.2 with 4, 17.8 with 8 and with 16."""

ASSETS_OF_A_REQUEST: Final = 8
"""As many of them may belong to one request, so that one with slow hosts does not hold up the others."""


FRAMES_AT_ONCE: Final = 16
"""Frames that are summed up on the event loop; of more, others would notice."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AnalyzerLimits:
    """How much a worker takes on and remembers.

    Attributes:
        max_pending_pictures: Pictures taken on and not finished, from which on requests are refused.
        cache_bytes: What answers of back ends may take in memory, to be given again for the same content; 0: none are
            kept.
        decoding: What decoding may take.
    """

    max_pending_pictures: int = MAX_PENDING_PICTURES
    cache_bytes: int = DEFAULT_CACHE_BYTES
    decoding: DecodingLimits = field(default_factory=DecodingLimits)


_LIMITS: Final = AnalyzerLimits()


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """What is to be done.

    Attributes:
        request: `backend` and `feature` name all that is active; none may be.
        uploads: Contents of uploaded files.
        names: What the assets are called in the answer: the URLs as they were sent, then the files.
        held_pictures: How many pictures of each asset were held for when the order was taken.
        max_frames: How many are captured of a video, at most.
        digests: SHA-256 of each upload; none, if that is not known.
        asked: Features that were asked for, whether anybody serves them or not: their parts are in every asset.
        unavailable_errors: Sentences on what was asked for by name and nobody serves, for `all.errors`.
    """

    request: AnalyzeRequest
    uploads: tuple[bytes, ...]
    names: tuple[str, ...]
    held_pictures: tuple[int, ...]
    max_frames: int
    digests: tuple[bytes, ...] = ()
    asked: frozenset[str] = frozenset()
    unavailable_errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobCallbacks:
    """Whom the worker tells and asks while it is at it.

    Attributes:
        on_video: Told as soon as an asset turns out to be a video.
        hold_more: Asked to hold for so many pictures more; raises OutOfCredits.
    """

    on_video: Callable[[], None]
    hold_more: Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """What a request came to: the object `all` as JSON, and the credits it costs."""

    result: bytes
    paid: int


@dataclass(frozen=True, slots=True)
class _Looked:
    """One asset: its JSON, the back ends that answered, its pictures, and what went wrong."""

    asset: dict[str, Any] | None
    answered: tuple[str, ...]
    pictures: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Errand:
    """An order on its way: it stands for its caller wherever turns are taken, so no two are equal."""

    order: AnalysisJob
    desk: JobCallbacks
    share: asyncio.Semaphore
    questions: Mapping[str, InferenceParams]
    views: frozenset[InputTransform]


@dataclass(frozen=True, slots=True)
class _AssetTask:
    """One asset of an errand: where it comes from, what it is called, how many pictures are held for, its digest."""

    source: str | bytes
    name: str
    held: int
    digest: bytes | None


class Analyzer:
    """Does requests: fetches, decodes, asks the back ends, and puts their answers together.

    Args:
        backends: By name.
        fetcher: For assets that are named by URL.
        tariff: What is charged.
        workers: Videos that are decoded and looked at at once, over all requests: bounds processor and memory. Of
            images there are more at once: see `IMAGES_A_VIDEO`.
        limits: How much is taken on and remembered.
        metrics: Told of what is done.
        clock: Time.
    """

    def __init__(  # noqa: PLR0913 (parts that are put together once)
        self,
        backends: Mapping[str, Backend | ComposingBackend],
        fetcher: Fetcher,
        tariff: Tariff,
        workers: int,
        *,
        limits: AnalyzerLimits = _LIMITS,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._backends = backends
        self._composing = {name: each for name, each in backends.items() if isinstance(each, ComposingBackend)}
        looking = {name: each for name, each in backends.items() if isinstance(each, Backend)}
        self._views = {name: traits_of(backend).view for name, backend in looking.items()}
        self._fetcher = fetcher
        self._tariff = tariff
        self._metrics = metrics or Metrics()
        self._darkroom = MediaDecoder(limits.decoding)
        self._inference = InferenceQueues(looking, self._metrics)
        self._answers = ResultCache(limits.cache_bytes) if limits.cache_bytes else None
        self._gate = AdmissionController(limits.max_pending_pictures, clock or SystemClock())
        self._in_hand = FairSemaphore(ASSETS_IN_HAND)
        self._images = FairSemaphore(IMAGES_A_VIDEO * workers)
        self._videos = FairSemaphore(workers)
        self._metrics.watch_depth("inference", self._inference.depth)
        self._metrics.watch_depth("pictures", lambda: self._gate.waiting)

    async def warm(self) -> None:
        """Load all models.

        Raises:
            BackendError: one cannot be loaded.
        """
        await self._inference.warm()

    def close(self) -> None:
        """End the threads."""
        self._darkroom.close()
        self._inference.close()

    def admit(self, pictures: int, elsewhere: int = 0) -> CapacityReservation:
        """Room for the pictures of one more request: ask before anything is held, enter it until `do` is called.

        Args:
            pictures: How many, at most.
            elsewhere: Pictures that wait for this worker and that `do` was not called for yet.

        Raises:
            Busy: there is no room now.
        """
        try:
            return self._gate.admit(pictures, elsewhere)
        except ServiceOverloaded:
            self._metrics.refused("pictures")
            raise

    async def do(self, order: AnalysisJob, desk: JobCallbacks) -> AnalysisResult:
        """Look at every asset of an order."""
        request = order.request
        sources: list[str | bytes] = [*request.url, *order.uploads]
        questions = self._questions(request)
        views = frozenset(self._views[name] for name in questions if name in self._views)
        errand = _Errand(order, desk, asyncio.Semaphore(ASSETS_OF_A_REQUEST), questions, views)
        digests = (*(None,) * len(request.url), *(order.digests or (None,) * len(order.uploads)))
        assets = map(_AssetTask, sources, order.names, order.held_pictures, digests)
        looked = await _together([self._one(errand, asset) for asset in assets])
        found = [one.asset for one in looked if one.asset is not None]
        errors = [*order.unavailable_errors, *(error for one in looked for error in one.errors)]
        charged = [(one.answered, one.pictures) for one in looked if one.asset is not None]
        paid = self._tariff.charge(charged, request.feature, request.prompt)
        return AnalysisResult(orjson.dumps({"assets": found, "errors": errors}), paid)

    def _questions(self, request: AnalyzeRequest) -> dict[str, InferenceParams]:
        options = AnalysisOptions(role=request.role, language=request.language, prompt=request.prompt)
        wanted = frozenset(request.feature)
        features = {name: self._backends[name].features & wanted for name in request.backend}
        for name in request.backend:
            if name in self._composing:
                for needed, its in self._composing[name].builds_on.items():
                    features[needed] = features.get(needed, frozenset()) | its
        return {name: InferenceParams(its, options) for name, its in features.items()}

    async def _one(self, errand: _Errand, asset: _AssetTask) -> _Looked:
        with self._gate.take(asset.held):
            async with errand.share, self._in_hand.place(errand):
                try:
                    looked = await self._asset(errand, asset)
                except (MediaError, FetchError, OutOfCredits) as error:
                    looked = _Looked(None, (), 0, (f"{asset.name}: {error}",))
            self._gate.finished(asset.held)
        return looked

    async def _asset(self, errand: _Errand, asset: _AssetTask) -> _Looked:
        order = errand.order
        async with self._film(asset) as film:
            known = sniff(film.head)
            is_video = known is not None and known[0] == "video"
            if is_video:
                errand.desk.on_video()
            sampled = (order.request.capture_interval, order.max_frames) if is_video else (0, 0)
            content = None if self._answers is None else ContentKey(await film.digest(), *sampled)
            seen = self._recall(content, errand)
            if seen is not None and is_video and len(seen.shape.times_s or ()) > asset.held:
                await errand.desk.hold_more(len(seen.shape.times_s or ()) - asset.held)
            if seen is None:
                async with (self._videos if is_video else self._images).place(errand):
                    seen = await (self._watch if is_video else self._look)(errand, asset, film)
                self._remember(content, errand, seen)
        if len(seen.shape.times_s or ()) > FRAMES_AT_ONCE:
            return await asyncio.to_thread(self._looked, errand, asset.name, seen)
        return self._looked(errand, asset.name, seen)

    @asynccontextmanager
    async def _film(self, asset: _AssetTask) -> AsyncIterator[AssetPayload]:
        source = asset.source
        if isinstance(source, bytes):
            yield AssetPayload.of(source, asset.digest)
            return
        async with AsyncExitStack() as stack:
            with self._metrics.timed("fetch"):
                film = await stack.enter_async_context(self._fetcher.fetch(source))
            yield film

    async def _look(self, errand: _Errand, _: _AssetTask, film: AssetPayload) -> AssetFindings:
        """Look at an image."""
        with self._metrics.timed("decode"):
            pictures = await self._darkroom.image(film, errand.views)
        return AssetFindings(metadata_of(pictures), await self._ask_all(pictures, errand))

    async def _watch(self, errand: _Errand, asset: _AssetTask, film: AssetPayload) -> AssetFindings:
        """Look at the frames of a video."""
        interval_s, most = errand.order.request.capture_interval, errand.order.max_frames
        seen = None
        async with film.as_file() as path:
            if not most or asset.held < most:  # its name told too little to hold for all of it
                most = await self._darkroom.frames_of(path, interval_s, most)
                if most > asset.held:
                    await errand.desk.hold_more(most - asset.held)
            async with aclosing(self._darkroom.video(path, errand.views, interval_s, most)) as slices:
                while (pictures := await self._decoded(slices)) is not None:
                    seen = joined(seen, metadata_of(pictures), await self._ask_all(pictures, errand))
                    del pictures  # the next slice must not lie in memory beside this one
        if seen is None:
            raise BrokenMedia("there is no picture in it")
        return seen

    async def _decoded(self, slices: AsyncIterator[DecodedPictures]) -> DecodedPictures | None:
        with self._metrics.timed("decode"):
            return await anext(slices, None)

    async def _ask_all(self, pictures: DecodedPictures, errand: _Errand) -> dict[str, list[Entries] | BackendError]:
        asking = [
            self._ask(backend, question, pictures, errand)
            for backend, question in errand.questions.items()
            if backend not in self._composing
        ]
        found = dict(await _together(asking))
        count = len(pictures.times_s) if pictures.times_s is not None else 1
        for name in errand.questions:
            if name in self._composing:
                found[name] = compose_entries(self._composing[name], found, count, errand.questions[name].options)
        return found

    async def _ask(
        self, backend: str, question: InferenceParams, pictures: DecodedPictures, errand: _Errand
    ) -> tuple[str, list[Entries] | BackendError]:
        view = self._views[backend]
        try:
            found = await self._inference.ask(backend, pictures.seen[view], question, errand)
        except BackendError as error:
            return backend, error
        return backend, in_asset_pixels(found, view, pictures)

    def _recall(self, content: ContentKey | None, errand: _Errand) -> AssetFindings | None:
        """What was found in this content before, if all of it is known."""
        if self._answers is None or content is None:
            return None
        shape = self._answers.shape(content)
        found: dict[str, list[Entries] | BackendError] = {}
        for backend, question in errand.questions.items():
            entries = None if shape is None else self._answers.find(content, backend, question)
            if entries is None:
                break
            found[backend] = entries
        hit = shape is not None and len(found) == len(errand.questions)
        self._metrics.cache(hit=hit)
        return AssetFindings(shape, found) if shape is not None and hit else None

    def _remember(self, content: ContentKey | None, errand: _Errand, seen: AssetFindings) -> None:
        if self._answers is None or content is None:
            return
        self._answers.put_metadata(content, seen.shape)
        for backend, entries in seen.found.items():
            if not isinstance(entries, BackendError):  # what went wrong may go right the next time
                self._answers.keep(content, backend, errand.questions[backend], entries)

    def _looked(self, errand: _Errand, name: str, seen: AssetFindings) -> _Looked:
        count = len(seen.shape.times_s) if seen.shape.times_s is not None else 1
        request = errand.order.request
        requested = {backend: seen.found[backend] for backend in request.backend}
        # The asset is named, because a list of several cannot be matched to its rows otherwise.
        errors = tuple(
            f"{backend}: {each} ({name})" for backend, each in requested.items() if isinstance(each, BackendError)
        )
        found = {
            backend: [only(entries, request.feature) for entries in each]
            for backend, each in requested.items()
            if not isinstance(each, BackendError)
        }
        if errors and not found:  # nobody could look: an asset without entries would pass for one that was looked at
            return _Looked(None, (), 0, errors)
        for backend in found:
            self._metrics.looked_at(backend, self._backends[backend].features & frozenset(request.feature), count)
        frames = [merged([entries[index] for entries in found.values()]) for index in range(count)]
        asset = as_json(name, seen.shape, frames, request.tag_score, errand.order.asked)
        return _Looked(asset, tuple(found), count, errors)


async def _together(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; when one raises or this is cancelled, the others have ended before it is known outside."""
    if len(coroutines) == 1:  # most requests are for one picture: it needs no task of its own
        return [await coroutines[0]]
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
