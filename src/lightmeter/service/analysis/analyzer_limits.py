"""Limits of the analyzer that the command line sets."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightmeter.service.analysis.backpressure import MAX_PENDING_PICTURES
from lightmeter.service.analysis.result_cache import DEFAULT_CACHE_BYTES
from lightmeter.service.ingest.decode import DecodingLimits


@dataclass(frozen=True, slots=True)
class AnalyzerLimits:
    """Limits of the analyzer.

    Attributes:
        max_pending_pictures: Maximum images and video frames of an account's unfinished requests; more are refused.
        cache_bytes: Size of the cache of back-end results in bytes; 0: no cache.
        decoding: Limits of decoding.
    """

    max_pending_pictures: int = MAX_PENDING_PICTURES
    cache_bytes: int = DEFAULT_CACHE_BYTES
    decoding: DecodingLimits = field(default_factory=DecodingLimits)
