"""In-memory LRU cache of the entries (tags, colors and so on) that back ends found in a file.

The key of a file is its SHA-256, so the same content under another name has the same key.
A cached result is identical to the computed one, and costs the client the same credits. The cache only saves CPU time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lightmeter.service.analysis.inference_queue import InferenceParams
from lightmeter.service.ingest.decode import AssetMetadata
from lightmeter.wire.response import Entries

DEFAULT_CACHE_BYTES: Final = 64 * 1024**2

_OVERHEAD_BYTES: Final = 300
"""Estimated memory of a cached item in addition to its value: for its key, digest and containers."""


@dataclass(frozen=True, slots=True)
class ContentKey:
    """Cache key of an image file, or of the frames that are taken from a video file.

    Attributes:
        digest: SHA-256 of the file.
        interval_s: Seconds between the frames that are taken from a video; 0 for an image.
        max_frames: Maximum number of frames that are taken from a video, or 0 for no limit; 0 for an image.
    """

    digest: bytes
    interval_s: int = 0
    max_frames: int = 0


_EntriesKey: TypeAlias = tuple[ContentKey, str, bytes]
"""Cache key of entries: the file, the name of the back end that found them, and the digest of its features and options.

A prompt can have megabytes, so the features and options themselves are not kept.
"""


class ResultCache:
    """LRU cache of metadata of images and videos, and of the entries (tags and so on) that back ends found in them.

    When the cache is full, the values that were not used for the longest time are removed. The cache is not
    thread-safe: use it only on one event loop.

    Args:
        max_bytes: Maximum total size of the cached values: their size as JSON, plus an estimated overhead for each.

    Attributes:
        size_bytes: Current total size of the cached values, measured like `max_bytes`.
    """

    def __init__(self, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._items: OrderedDict[ContentKey | _EntriesKey, AssetMetadata | tuple[bytes, ...]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def get_metadata(self, content: ContentKey) -> AssetMetadata | None:
        """Return the cached metadata, such as width and height, of the image or video `content`; None: not cached."""
        value = self._get(content)
        return value if isinstance(value, AssetMetadata) else None

    def put_metadata(self, content: ContentKey, metadata: AssetMetadata) -> None:
        """Cache the metadata, such as width and height, of the image or video `content`."""
        self._put(content, metadata)

    def get_entries(self, content: ContentKey, backend: str, params: InferenceParams) -> list[Entries] | None:
        """Return what a back end found in the image or video `content`, as new copies; None: not cached.

        The list has one `Entries` for the image, or one for each frame that was taken from the video.

        Args:
            content: The image or video.
            backend: Name of the back end.
            params: Features and options that the back end was called with.
        """
        value = self._get((content, backend, params.digest))
        # Cached as JSON, so that callers get independent copies, and the size is known.
        return [Entries.model_validate_json(each) for each in value] if isinstance(value, tuple) else None

    def put_entries(
        self, content: ContentKey, backend: str, params: InferenceParams, entries: Sequence[Entries]
    ) -> None:
        """Cache what a back end found in the image or video `content`.

        Args:
            content: The image or video.
            backend: Name of the back end.
            params: Features and options that the back end was called with.
            entries: One `Entries` for the image, or one for each frame that was taken from the video.
        """
        self._put((content, backend, params.digest), tuple(each.model_dump_json().encode() for each in entries))

    def _get(self, key: ContentKey | _EntriesKey) -> AssetMetadata | tuple[bytes, ...] | None:
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def _put(self, key: ContentKey | _EntriesKey, value: AssetMetadata | tuple[bytes, ...]) -> None:
        size = _size(value)
        if size > self._max_bytes:
            return
        if key in self._items:
            self.size_bytes -= _size(self._items.pop(key))
        self._items[key] = value
        self.size_bytes += size
        while self.size_bytes > self._max_bytes:
            _, oldest = self._items.popitem(last=False)
            self.size_bytes -= _size(oldest)


def _size(value: AssetMetadata | tuple[bytes, ...]) -> int:
    if isinstance(value, AssetMetadata):
        return _OVERHEAD_BYTES + 8 * len(value.times_s or ())
    return _OVERHEAD_BYTES + sum(map(len, value))
