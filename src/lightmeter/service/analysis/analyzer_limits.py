"""The dataclass `AnalyzerLimits`, with settings of the class `Analyzer`.

They limit the unfinished images and video frames, the memory of the cache, and the decoding of images and videos.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lightmeter.service.analysis.backpressure import MAX_PENDING_PICTURES
from lightmeter.service.analysis.result_cache import DEFAULT_CACHE_BYTES
from lightmeter.service.ingest.decode import DecodingLimits


@dataclass(frozen=True, slots=True)
class AnalyzerLimits:
    """Limits of the class `Analyzer`, which analyzes the images and videos of all requests.

    Attributes:
        max_pending_pictures: Maximum images and video frames in the unfinished requests of one account.
        cache_bytes: Size of the cache of back-end results in bytes; 0: no cache.
        decoding: Limits of the processes, the threads and the memory for decoding images and videos.
    """

    max_pending_pictures: int = MAX_PENDING_PICTURES
    cache_bytes: int = DEFAULT_CACHE_BYTES
    decoding: DecodingLimits = field(default_factory=DecodingLimits)
