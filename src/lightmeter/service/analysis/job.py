"""Input and output of `Analyzer`: a prepared request, and its result with the credits to charge."""

from __future__ import annotations

from dataclasses import dataclass

from lightmeter.wire.request import AnalyzeRequest


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """A request that is prepared for `Analyzer.run`: aliases and default values are resolved.

    Attributes:
        request: The request, reduced to the available back ends and features. Its list `backend` or `feature` is empty
            if none is available.
        uploads: Contents of uploaded files.
        names: Names of the assets (images and videos) in the answer: URLs as the client sent them, then file names.
        held_pictures: For each asset, the number of pictures whose price is reserved: 1 for an image, or video frames.
        max_frames: Maximum number of frames that are taken from a video; 0: no limit.
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
    held_pictures: tuple[int, ...]
    max_frames: int
    digests: tuple[bytes, ...] = ()
    requested_features: frozenset[str] = frozenset()
    unavailable_errors: tuple[str, ...] = ()
    account_id: int = 0


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """Result of the analysis of a request: the object `all` of the answer as JSON, and the credits to charge."""

    results_json: bytes
    charge: int
