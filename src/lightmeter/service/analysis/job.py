"""What the analyzer gets for a request, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lightmeter.models.request import AnalyzeRequest

__all__ = ["AnalysisJob", "AnalysisResult", "JobCallbacks"]


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """A request, prepared for the analyzer.

    Attributes:
        request: The request; `backend` and `feature` name those that are active, which may be none.
        uploads: Contents of uploaded files.
        names: Names of the assets in the answer: the URLs as they were sent, then the file names.
        held_pictures: For each asset, the number of pictures whose price is held already.
        max_frames: Maximum frames captured of a video; 0: no limit.
        digests: SHA-256 of each upload; empty if not known.
        requested_features: Features that the request names, available or not; every asset has their fields.
        unavailable_errors: Messages for `all.errors` on requested back ends and features that are not available.
    """

    request: AnalyzeRequest
    uploads: tuple[bytes, ...]
    names: tuple[str, ...]
    held_pictures: tuple[int, ...]
    max_frames: int
    digests: tuple[bytes, ...] = ()
    requested_features: frozenset[str] = frozenset()
    unavailable_errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobCallbacks:
    """What a running job needs from its request.

    Attributes:
        on_video: Called when an asset turns out to be a video.
        hold_more: Holds the price of so many more pictures; raises OutOfCredits.
    """

    on_video: Callable[[], None]
    hold_more: Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The result of a request: the object `all` as JSON, and the credits to charge."""

    result: bytes
    paid: int
