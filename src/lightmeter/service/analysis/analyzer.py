"""Analyzes requests: fetches and decodes images and videos, calls back ends, merges results, computes charges.

If an image or video cannot be analyzed, `all.errors` in the answer has a message. All others are still analyzed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from lightmeter import telemetry
from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import BackendError, BrokenMedia, FetchError, MediaError, OutOfCredits
from lightmeter.media.media_info import SNIFF_BYTES, is_video
from lightmeter.service.analysis.analyzer_limits import AnalyzerLimits
from lightmeter.service.analysis.backpressure import NO_WAITING_REQUESTS, AdmissionController, ServiceOverloaded
from lightmeter.service.analysis.coordinates import in_asset_pixels
from lightmeter.service.analysis.fair_queue import Caller, FairSemaphore
from lightmeter.service.analysis.inference_queue import InferenceOutcome, InferenceParams, InferenceQueues
from lightmeter.service.analysis.job import AnalysisJob, AnalysisResult, AssetTask, RunningJob
from lightmeter.service.analysis.merge import (
    AssetFindings,
    EntriesByBackend,
    answered_features,
    append_slice,
    as_json,
    compose_entries,
    error_messages,
    merge_entries,
    select_features,
)
from lightmeter.service.analysis.result_cache import ContentKey, ResultCache
from lightmeter.service.backends.base import AnalysisOptions, Backend, ComposingBackend, PartialEntries, traits_of
from lightmeter.service.ingest.asset_content import AssetContent, TempFolderError
from lightmeter.service.ingest.decode import DecodedPictures, MediaDecoder
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.metrics import Metrics
from lightmeter.service.store.credits import BackendFeatures, Tariff
from lightmeter.wire.request import AnalyzeRequest

MAX_OPEN_ASSETS: Final = 64
"""Maximum images and videos of an account that are fetched or analyzed at once, to limit connections and files."""

IMAGES_PER_VIDEO: Final = 4
"""The maximum of images that are analyzed at once is this many times the maximum of videos (`max_videos_per_account`).

An image needs little memory. On one core, each took 19.0 ms with 2 images at once, 18.2 with 4, 17.8 with 8 or 16."""

MAX_OPEN_ASSETS_OF_REQUEST: Final = 8
"""Maximum images and videos of a request that are fetched or analyzed at once. So slow hosts do not block others."""

MAX_FRAMES_ON_LOOP: Final = 16
"""Maximum frames of a video that are summarized on the event loop. More would block it, so a thread summarizes them."""

T = TypeVar("T")

_LIMITS: Final = AnalyzerLimits()


@dataclass(frozen=True, slots=True)
class _AssetResult:
    """Result of the analysis of one image or video, for the answer and for the charge.

    Attributes:
        asset: JSON of the image or video in the answer; None if it could not be analyzed.
        charged: Back ends with the features that they answered, and for how many pictures (images or video frames).
        errors: Messages for the user.
    """

    asset: dict[str, Any] | None
    charged: tuple[tuple[BackendFeatures, int], ...]
    errors: tuple[str, ...]


class Analyzer:
    """Fetches and decodes the assets (images and videos) of requests, and calls the back ends.

    Args:
        backends: Back ends by name.
        fetcher: Fetches assets by URL.
        tariff: Prices.
        max_videos_per_account: Maximum videos of an account that are analyzed at once. The maximum number of images is
            `IMAGES_PER_VIDEO` times as high.
        limits: Limits of unfinished images and video frames, of the cache of results, and of decoding.
        metrics: Receives counts and durations.
        clock: Source of the time.
    """

    def __init__(  # noqa: PLR0913 (all components meet here)
        self,
        backends: Mapping[str, Backend | ComposingBackend],
        fetcher: Fetcher,
        tariff: Tariff,
        max_videos_per_account: int,
        *,
        limits: AnalyzerLimits = _LIMITS,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._backends = backends
        self._composing = {name: each for name, each in backends.items() if isinstance(each, ComposingBackend)}
        inferring = {name: each for name, each in backends.items() if isinstance(each, Backend)}
        self._transforms = {name: traits_of(backend).transform for name, backend in inferring.items()}
        self._fetcher = fetcher
        self._tariff = tariff
        self._metrics = metrics or Metrics()
        self._decoder = MediaDecoder(limits.decoding)
        self._inference = InferenceQueues(inferring, self._metrics)
        self._cache = ResultCache(limits.cache_bytes) if limits.cache_bytes else None
        self._admission = AdmissionController(limits.max_pending_pictures, clock or SystemClock())
        self._open_assets = FairSemaphore(MAX_OPEN_ASSETS)
        self._images = FairSemaphore(IMAGES_PER_VIDEO * max_videos_per_account)
        self._videos = FairSemaphore(max_videos_per_account)
        self._counts = FairSemaphore(limits.decoding.decoders)
        self._metrics.watch_queue_depth("inference", self._inference.depth)
        self._metrics.watch_queue_depth("pictures", lambda: self._admission.pending_pictures)

    def close(self) -> None:
        """Stop the threads that decode images or call back ends; each thread finishes its current task first."""
        self._decoder.close()
        self._inference.close()

    def admit(
        self, account_id: int, pictures: int, waiting_requests: Mapping[int, int] = NO_WAITING_REQUESTS
    ) -> AbstractContextManager[None]:
        """Return a context manager. In its `with` block, a new request's images and frames count as unfinished.

        The caller stores the new request in this block. If the request is refused, an exception is raised instead.

        Args:
            account_id: Account that sent the request.
            pictures: Maximum number of images and frames of the request.
            waiting_requests: Account number → number of its requests in the job queue; each counts as one picture.

        Raises:
            ServiceOverloaded: the account, or all accounts together, have too many unfinished images and video frames.
        """
        try:
            return self._admission.admit(account_id, pictures, waiting_requests)
        except ServiceOverloaded:
            self._metrics.count_refusal("pictures")
            raise

    async def count_pictures(self, job: AnalysisJob) -> int:
        """Return how many images and video frames a request has. A video of a URL, or a broken one, counts as one.

        Raises:
            TempFolderError: an uploaded video cannot be stored in the temporary folder.
        """
        videos = [upload for upload in job.uploads if is_video(upload[:SNIFF_BYTES])]
        frames = await _gather([self._count_frames(job, video) for video in videos]) if videos else []
        return len(job.names) - len(videos) + sum(frames)

    async def _count_frames(self, job: AnalysisJob, video: bytes) -> int:
        async with (
            self._counts.acquire(Caller(job.account_id, id(job))),
            AssetContent.from_bytes(video).as_file() as path,
        ):
            try:
                return await self._decoder.count_frames(path, job.request.capture_interval, job.request.max_frames)
            except MediaError:  # its analysis reports the error
                return 1

    async def run(
        self, job: AnalysisJob, hold: Callable[[int], Awaitable[None]], on_video: Callable[[], None] = lambda: None
    ) -> AnalysisResult:
        """Analyze every image and video of a request; return the results and the charge.

        Args:
            job: The request, prepared for analysis.
            hold: Function that takes a number of images and video frames, and reserves the price of all of them
                together. The price of one picture for each asset is reserved already. If the function raises
                OutOfCredits, the answer has an error message instead of the video.
            on_video: Called for each asset (image or video of the request) that turns out to be a video.

        Raises:
            TempFolderError: the request has only one asset, which cannot be stored in the temporary folder.
        """
        request = job.request
        sources: list[str | bytes] = [*request.url, *job.uploads]
        params = self._inference_params(request)
        transforms = frozenset(self._transforms[name] for name in params if name in self._transforms)
        running = RunningJob(
            job, hold, on_video, asyncio.Semaphore(MAX_OPEN_ASSETS_OF_REQUEST), params, transforms, len(job.names)
        )
        digests = (*(None,) * len(request.url), *(job.digests or (None,) * len(job.uploads)))
        assets = map(AssetTask, sources, job.names, digests)
        results = await _gather([self._run_asset(running, asset) for asset in assets])
        errors = [*job.unavailable_errors, *(error for result in results for error in result.errors)]
        charge = self._tariff.charge((each for result in results for each in result.charged), request.prompt)
        analyzed = [result.asset for result in results if result.asset is not None]
        return AnalysisResult(orjson.dumps({"assets": analyzed, "errors": errors}), charge)

    def _inference_params(self, request: AnalyzeRequest) -> dict[str, InferenceParams]:
        """Return back end → its features and options, for the requested back ends and those whose results they need."""
        options = AnalysisOptions(role=request.role, language=request.language, prompt=request.prompt)
        requested = frozenset(request.feature)
        features = {name: self._backends[name].features & requested for name in request.backend}
        for name in request.backend:
            if name in self._composing:
                for base, base_features in self._composing[name].builds_on.items():
                    if base in self._backends:  # it works with those that are available
                        features[base] = features.get(base, frozenset()) | base_features
        return {name: InferenceParams(each, options) for name, each in features.items()}

    async def _run_asset(self, running: RunningJob, asset: AssetTask) -> _AssetResult:
        """Analyze the image or video `asset` of the request `running`, after a wait if too many are in progress.

        If the analysis fails, return a result that has an error message for the user, and None as `asset`.
        """
        with self._admission.reserve(running.job.account_id, 1):
            async with running.open_assets, self._open_assets.acquire(running.caller):
                try:
                    result = await self._analyze_asset(running, asset)
                except (MediaError, FetchError, OutOfCredits) as error:
                    result = _AssetResult(None, (), (f"{asset.name}: {error}",))
                except TempFolderError as error:
                    if len(running.job.names) == 1:  # nothing else to deliver: the client can send it again
                        raise
                    result = _AssetResult(None, (), (f"{asset.name}: {error}",))
            self._admission.record_finished(max(1, sum(count for _, count in result.charged)))
        return result

    async def _analyze_asset(self, running: RunningJob, asset: AssetTask) -> _AssetResult:
        job = running.job
        async with self._open(asset) as content:
            video = is_video(content.head)
            if video:
                running.on_video()
            sampling = (job.request.capture_interval, job.request.max_frames) if video else (0, 0)
            key = None if self._cache is None else ContentKey(await content.digest(), *sampling)
            findings = self._cached_findings(key, running)
            if findings is None:
                async with (self._videos if video else self._images).acquire(running.caller):
                    analyze = self._analyze_video if video else self._analyze_image
                    findings = await analyze(running, content)
                self._cache_findings(key, running, findings)
            elif video:
                await running.hold_frames(findings.metadata.count)
        if findings.metadata.count > MAX_FRAMES_ON_LOOP:
            return await asyncio.to_thread(self._asset_result, running, asset.name, findings)
        return self._asset_result(running, asset.name, findings)

    @asynccontextmanager
    async def _open(self, asset: AssetTask) -> AsyncIterator[AssetContent]:
        source = asset.source
        if isinstance(source, bytes):
            yield AssetContent.from_bytes(source, asset.digest)
            return
        async with AsyncExitStack() as stack:
            with self._metrics.time_step("fetch"), telemetry.span("lightmeter.fetch"):
                content = await stack.enter_async_context(self._fetcher.fetch(source))
            yield content

    async def _analyze_image(self, running: RunningJob, content: AssetContent) -> AssetFindings:
        with self._metrics.time_step("decode"):
            pictures = await self._decoder.decode_image(content, running.transforms)
        return AssetFindings(pictures.metadata, await self._infer_all(pictures, running))

    async def _analyze_video(self, running: RunningJob, content: AssetContent) -> AssetFindings:
        request, findings = running.job.request, None
        interval_s = request.capture_interval
        async with content.as_file() as path:
            # The limit of a request says little about a video: most have fewer frames.
            frames = await self._decoder.count_frames(path, interval_s, request.max_frames)
            await running.hold_frames(frames)
            slices = self._decoder.decode_video(path, running.transforms, interval_s, frames)
            with self._admission.reserve(running.job.account_id, frames - 1):
                async with aclosing(slices):
                    while (pictures := await self._next_slice(slices)) is not None:
                        entries = await self._infer_all(pictures, running)
                        findings = append_slice(findings, pictures.metadata, entries)
                        del pictures  # frees its memory before the next slice is decoded
        if findings is None:
            raise BrokenMedia("there is no picture in it")
        return findings

    async def _next_slice(self, slices: AsyncIterator[DecodedPictures]) -> DecodedPictures | None:
        with self._metrics.time_step("decode"):
            return await anext(slices, None)

    async def _infer_all(self, pictures: DecodedPictures, running: RunningJob) -> EntriesByBackend:
        """Return back end → its entries (tags, …) or its error. Back ends that build on other results run last."""
        entries = dict(
            await _gather(
                [
                    self._infer(backend, params, pictures, running)
                    for backend, params in running.params.items()
                    if backend not in self._composing
                ]
            )
        )
        for name, params in running.params.items():
            if name in self._composing:
                entries[name] = compose_entries(self._composing[name], entries, pictures.metadata.count, params.options)
        return entries

    async def _infer(
        self, backend: str, params: InferenceParams, pictures: DecodedPictures, running: RunningJob
    ) -> tuple[str, list[InferenceOutcome]]:
        transform = self._transforms[backend]
        pixels, count = pictures.pixels_by_transform[transform], pictures.metadata.count
        attributes: telemetry.Attributes = {"lightmeter.backend": backend, "lightmeter.pictures": count}
        with telemetry.span("lightmeter.analysis", attributes):
            outcomes = await self._inference.infer(backend, pixels, params, running.caller)
        return backend, in_asset_pixels(outcomes, transform, pictures)

    def _cached_findings(self, content: ContentKey | None, running: RunningJob) -> AssetFindings | None:
        """Return the cached results for the file `content`; None unless every back end of `running` has a result."""
        if self._cache is None or content is None:
            return None
        metadata = self._cache.get_metadata(content)
        cached: dict[str, list[InferenceOutcome]] = {}
        for backend, params in running.params.items():
            entries = None if metadata is None else self._cache.get_entries(content, backend, params)
            if entries is None:
                break
            cached[backend] = [*entries]
        hit = metadata is not None and len(cached) == len(running.params)
        self._metrics.count_cache_lookup(hit=hit)
        return AssetFindings(metadata, cached) if metadata is not None and hit else None

    def _cache_findings(self, content: ContentKey | None, running: RunningJob, findings: AssetFindings) -> None:
        if self._cache is None or content is None:
            return
        self._cache.put_metadata(content, findings.metadata)
        for backend, outcomes in findings.entries.items():
            whole = [each for each in outcomes if not isinstance(each, BackendError | PartialEntries)]
            if len(whole) == len(outcomes):  # otherwise, the next call may succeed
                self._cache.put_entries(content, backend, running.params[backend], whole)

    def _asset_result(self, running: RunningJob, name: str, findings: AssetFindings) -> _AssetResult:
        request = running.job.request
        requested = {backend: findings.entries[backend] for backend in request.backend}
        errors = error_messages(requested, request.feature, name)
        frames, charged = [], Counter[BackendFeatures]()
        for index in range(findings.metadata.count):
            outcomes = {backend: each[index] for backend, each in requested.items()}
            charged[answered_features(outcomes, request.feature)] += 1
            entries = [each for each in outcomes.values() if not isinstance(each, BackendError)]
            frames.append(merge_entries([select_features(each, request.feature) for each in entries]))
        if errors and not any(charged):  # an asset without entries would look like one in which nothing was found
            return _AssetResult(None, (), errors)
        for answered, count in charged.items():
            for backend, features in answered:
                self._metrics.count_pictures(backend, self._backends[backend].features.intersection(features), count)
        asset = as_json(name, findings.metadata, frames, request.tag_score, running.job.requested_features)
        return _AssetResult(asset, tuple(charged.items()), errors)


async def _gather(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently; return their results in order. If one fails, cancel the rest and raise its error."""
    if len(coroutines) == 1:  # most requests have one picture, which needs no task of its own
        return [await coroutines[0]]
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
