"""Input and output of `Analyzer`: a prepared request, its state while it runs, and its result with the charge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from lightmeter.media.image_transforms import InputTransform
from lightmeter.service.analysis.fair_queue import Caller
from lightmeter.service.analysis.inference_queue import InferenceParams
from lightmeter.wire.request import AnalyzeRequest


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """A request that is prepared for `Analyzer.run`: aliases and default values are resolved.

    Attributes:
        request: The request, reduced to the available back ends and features. Its list `backend` or `feature` is empty
            if none is available.
        uploads: Contents of uploaded files.
        names: Names of the assets (images and videos) in the answer: URLs as the client sent them, then file names.
        digests: SHA-256 of each upload. Empty: the digests were not computed yet.
        requested_features: Features that the request names, whether they are available or not. If it names none: all
            features except `embeddings`. In the answer, each asset has a field for each of these features, which may be
            empty.
        unavailable_errors: Messages about requested back ends and features that are not available, for `all.errors`.
        account_id: Number of the account that pays; the queues serve accounts in turn.
    """

    request: AnalyzeRequest
    uploads: tuple[bytes, ...]
    names: tuple[str, ...]
    digests: tuple[bytes, ...] = ()
    requested_features: frozenset[str] = frozenset()
    unavailable_errors: tuple[str, ...] = ()
    account_id: int = 0


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """Result of the analysis of a request: the object `all` of the answer as JSON, and the credits to charge."""

    results_json: bytes
    charge: int


@dataclass(slots=True, eq=False)
class RunningJob:
    """A request that is being analyzed, with the data that the analyses of its images and videos share.

    Attributes:
        job: The request, prepared for analysis.
        hold: Function that takes a number of images and video frames, and reserves the price of all of them together.
            May raise OutOfCredits.
        on_video: Called for each asset (image or video of the request) that turns out to be a video.
        open_assets: Limits how many assets of the request are fetched or analyzed at once.
        params: Name of a back end → its features and options.
        transforms: Transforms (scale, crop) that make the back ends' inputs from a picture (image or video frame).
        pictures: Number of images and video frames, as far as it is known: a video counts as one before it is opened.
    """

    job: AnalysisJob
    hold: Callable[[int], Awaitable[None]]
    on_video: Callable[[], None]
    open_assets: asyncio.Semaphore
    params: Mapping[str, InferenceParams]
    transforms: frozenset[InputTransform]
    pictures: int
    _holding: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def caller(self) -> Caller:
        """The request and its account, for the fair queues."""
        return Caller(self.job.account_id, self)

    async def hold_frames(self, frames: int) -> None:
        """Reserve the price of a video of `frames` frames.

        Raises:
            OutOfCredits: the balance is too low.
        """
        async with self._holding:
            await self.hold(self.pictures + frames - 1)
            self.pictures += frames - 1


@dataclass(frozen=True, slots=True)
class AssetTask:
    """An image or video to analyze: its URL or uploaded content (`source`), and its name in the answer.

    `digest` is the SHA-256, if known.
    """

    source: str | bytes
    name: str
    digest: bytes | None
