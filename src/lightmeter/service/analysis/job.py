"""Input and output of `Analyzer`: a prepared request, and its result with the credits to charge."""

from __future__ import annotations

from dataclasses import dataclass

from lightmeter.wire.request import AnalyzeRequest


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """A request that is prepared for `Analyzer.run`: aliases and default values are resolved.

    Attributes:
        request: The request with only available back ends and features; the lists `backend` and `feature` are empty if
            none is available.
        uploads: Contents of uploaded files.
        names: Names of the assets (images and videos) in the answer: URLs as the client sent them, then file names.
        held_pictures: For each asset, the number of images (1) or video frames whose price is reserved.
        max_frames: Maximum frames captured of a video; 0: no limit.
        digests: SHA-256 of each upload; empty: not computed yet.
        requested_features: Features that the request names, available or not; all but `embeddings` if it names
            none. In the answer, each asset has a field for each of these features, which may be empty.
        unavailable_errors: Messages for `all.errors` on requested back ends and features that are not available.
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
