"""Limits of the class `Analyzer` (pending pictures, cache, decoding), which options of the command line set."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightmeter.service.analysis.backpressure import MAX_PENDING_PICTURES
from lightmeter.service.analysis.result_cache import DEFAULT_CACHE_BYTES
from lightmeter.service.ingest.decode import DecodingLimits


@dataclass(frozen=True, slots=True)
class AnalyzerLimits:
    """Limits of the class `Analyzer`, which analyzes the images and videos of all requests.

    Attributes:
        max_pending_pictures: Maximum images and video frames of an account's unfinished requests; more are refused.
        cache_bytes: Size of the cache of back-end results in bytes; 0: no cache.
        decoding: Limits of the processes, threads and memory that decode images and videos.
    """

    max_pending_pictures: int = MAX_PENDING_PICTURES
    cache_bytes: int = DEFAULT_CACHE_BYTES
    decoding: DecodingLimits = field(default_factory=DecodingLimits)
