"""Answers of back ends, kept by the content they were given for.

The same picture asked about twice is looked at once. That saves the machine, not the money: an answer costs what it
costs, wherever it comes from, and reads the same to the byte. Kept in memory, bounded, the longest unused goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lightmeter.media.media_info import MediaKind
from lightmeter.models.response import Entries
from lightmeter.service.analysis.inference_queue import InferenceParams

__all__ = ["DEFAULT_CACHE_BYTES", "AssetMetadata", "ContentKey", "ResultCache"]

DEFAULT_CACHE_BYTES: Final = 64 * 1024**2

_OVERHEAD_BYTES: Final = 300
"""Allowed for what an entry takes beside its answers: key, digest, containers."""


@dataclass(frozen=True, slots=True)
class ContentKey:
    """What was looked at.

    Attributes:
        digest: SHA-256 of the file.
        interval_s, max_frames: How a video was sampled; 0 for an image, which has nothing to sample.
    """

    digest: bytes
    interval_s: int = 0
    max_frames: int = 0


@dataclass(frozen=True, slots=True)
class AssetMetadata:
    """What is known of a content besides what is in it; as `DecodedPictures`, without the pixels."""

    kind: MediaKind
    width: int
    height: int
    duration_s: float | None
    times_s: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class _About:
    """The key of an answer: which content, who looked, and what for."""

    content: ContentKey
    backend: str
    question: InferenceParams


class ResultCache:
    """The cache. For one event loop: nothing in it is locked.

    Args:
        most_bytes: What the answers may take, as JSON, with an allowance for each entry; not the exact use of memory.
    """

    def __init__(self, most_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[ContentKey | _About, AssetMetadata | tuple[bytes, ...]] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def shape(self, content: ContentKey) -> AssetMetadata | None:
        """What is known of a content; None if nothing is."""
        found = self._used(content)
        return found if isinstance(found, AssetMetadata) else None

    def put_metadata(self, content: ContentKey, shape: AssetMetadata) -> None:
        """Remember the shape of a content."""
        self._keep(content, shape)

    def find(self, content: ContentKey, backend: str, question: InferenceParams) -> list[Entries] | None:
        """What a back end found in the pictures of a content, fresh objects each time; None if it is not known."""
        found = self._used(_About(content, backend, question))
        # Kept as JSON: nobody can change what the next one gets, and the size is known.
        return [Entries.model_validate_json(each) for each in found] if isinstance(found, tuple) else None

    def keep(self, content: ContentKey, backend: str, question: InferenceParams, found: Sequence[Entries]) -> None:
        """Remember what a back end found in the pictures of a content."""
        self._keep(_About(content, backend, question), tuple(each.model_dump_json().encode() for each in found))

    def _used(self, key: ContentKey | _About) -> AssetMetadata | tuple[bytes, ...] | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def _keep(self, key: ContentKey | _About, value: AssetMetadata | tuple[bytes, ...]) -> None:
        size = _size(value)
        if size > self._most_bytes:
            return
        if key in self._kept:
            self.size_bytes -= _size(self._kept.pop(key))
        self._kept[key] = value
        self.size_bytes += size
        while self.size_bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.size_bytes -= _size(oldest)


def _size(value: AssetMetadata | tuple[bytes, ...]) -> int:
    if isinstance(value, AssetMetadata):
        return _OVERHEAD_BYTES + 8 * len(value.times_s or ())
    return _OVERHEAD_BYTES + sum(map(len, value))
