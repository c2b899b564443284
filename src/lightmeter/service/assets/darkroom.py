"""Where assets are decoded, within bounds that hold over all requests.

Images are decoded in threads, only so many pixels at a time; videos in processes of their own, only so many at a time
and each with limits of its own (`media.dialogue`). What comes out is small: pictures no larger than any back end uses,
and of a video one slice after another, so that a video of any length passes through bounded memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import MediaTooLarge, UnsupportedMedia
from lightmeter.media.facts import ImageFacts, MediaKind, VideoFacts, sniff
from lightmeter.media.image import load_rgb, read_facts
from lightmeter.media.sampling import frame_count
from lightmeter.media.video import MAX_CAPTURES, DecoderLimits, Frame, iter_video, probe_video
from lightmeter.models.vocabulary import FILE_TOO_LARGE, MAX_FILE_BYTES
from lightmeter.service.assets.allocator import give_back_large_blocks

__all__ = ["MOST_SIDE", "Darkroom", "DecodingLimits", "Pictures"]

MOST_SIDE: Final = 1024
"""Pixels of the longer side that back ends get: more than any of them uses, and cheap to decode."""


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """What decoding may take, over all requests.

    Attributes:
        decoders: Processes that decode videos at once.
        pixels_in_flight: Of images that are decoded at once; a single larger one is decoded alone. A pixel takes up to
            10 bytes while it is decoded: measured, a palette with transparency takes most.
        slice_frames: Frames of one video that are in memory at once, each up to 3 MB.
        video: Time, memory and pixels of each decoding process.
    """

    decoders: int = os.cpu_count() or 1
    pixels_in_flight: int = 64_000_000
    slice_frames: int = 32
    video: DecoderLimits = field(default_factory=DecoderLimits)


_LIMITS: Final = DecodingLimits()


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """An asset, decoded; of a video, a slice of it.

    Attributes:
        kind: Image or video.
        width, height: Of the original, upright, in pixels.
        duration_s: Of a video, as a whole.
        times_s: When each picture was captured, from the start of the video; None for an image.
        rgb: The pictures, each height x width x 3.
    """

    kind: MediaKind
    width: int
    height: int
    duration_s: float | None
    times_s: tuple[float, ...] | None
    rgb: tuple[NDArray[np.uint8], ...]


class _Budget:
    """So much of something, to be shared; first come, first served, so that the small do not pass the large."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._left = total
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def taking(self, amount: int) -> AsyncIterator[None]:
        """Have `amount` of it for the block, or all of it if it is more."""
        amount = min(amount, self._total)
        async with self._turn:
            while self._left < amount:
                self._freed.clear()
                await self._freed.wait()
            self._left -= amount
        try:
            yield
        finally:
            self._left += amount
            self._freed.set()


class Darkroom:
    """Decodes the assets of one process."""

    def __init__(self, limits: DecodingLimits = _LIMITS) -> None:
        give_back_large_blocks()
        self._limits = limits
        self._decoders = asyncio.Semaphore(limits.decoders)
        self._pixels = _Budget(limits.pixels_in_flight)

    async def frames_of(self, path: Path, interval_s: int, max_frames: int) -> int:
        """How many frames `pictures` would capture of a video; `max_frames` 0 means all.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout: as `pictures`.
        """
        async with self._decoders:
            facts = await probe_video(path, limits=self._limits.video)
        count = frame_count(facts.duration_s, interval_s, max_frames)
        if count > MAX_CAPTURES:
            raise MediaTooLarge(f"The video's {count} frames are more than {MAX_CAPTURES}.")
        return count

    async def pictures(
        self, path: Path, head: bytes, interval_s: int, max_frames: int
    ) -> AsyncGenerator[Pictures, None]:
        """Decode the file at `path`, whose first bytes are `head`.

        Nothing is open, and no other decoding kept waiting, while the caller looks at what it was given.

        Args:
            path: The file; it must stay as it is until the end.
            head: At least its first `SNIFF_BYTES`.
            interval_s: Seconds between captures of a video.
            max_frames: Most captures of a video; 0 means all.

        Yields:
            An image once; a video slice by slice.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout: it cannot be used, and why; of a video, also
                after some slices.
        """
        known = sniff(head)
        if known is None:
            raise UnsupportedMedia("not an image or a video of a known format")
        if known[0] == "image":
            yield await self._image(path)
            return
        slices = iter_video(
            path,
            interval_s=interval_s,
            max_frames=max_frames,
            max_side=MOST_SIDE,
            slice_frames=self._limits.slice_frames,
            limits=self._limits.video,
        )
        async with aclosing(slices):
            while (more := await self._next(slices)) is not None:
                yield more
                del more  # the next slice must not lie in memory beside this one

    async def _next(self, slices: AsyncIterator[tuple[VideoFacts, list[Frame]]]) -> Pictures | None:
        async with self._decoders:
            try:
                facts, frames = await anext(slices)
            except StopAsyncIteration:
                return None
        times = tuple(frame.time_s for frame in frames)
        rgb = tuple(frame.rgb for frame in frames)
        return Pictures("video", facts.width, facts.height, facts.duration_s, times, rgb)

    async def _image(self, path: Path) -> Pictures:
        content, facts = await asyncio.to_thread(_measured, path)
        async with self._pixels.taking(facts.width * facts.height):
            rgb = await asyncio.to_thread(load_rgb, content, max_side=MOST_SIDE)
        return Pictures("image", facts.width, facts.height, None, None, (rgb,))


def _measured(path: Path) -> tuple[bytes, ImageFacts]:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise MediaTooLarge(FILE_TOO_LARGE)
    content = path.read_bytes()
    return content, read_facts(content)
