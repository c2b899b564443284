"""Where assets are decoded, within bounds that hold over all requests.

Images are decoded in threads, only so many pixels at a time; videos in processes of their own, only so many at a time
and each with limits of its own (`media.dialogue`). What comes out is small: the views that back ends have of a picture,
and of a video one slice after another, so that a video of any length passes through bounded memory.

Each picture is decoded once, and each view is cut from what was decoded: what one back end gets does not depend on
which others are asked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import MediaTooLarge, UnsupportedMedia
from lightmeter.media.image import load_views, read_image_info
from lightmeter.media.image_transforms import InputTransform, transform_array
from lightmeter.media.media_info import ImageInfo, MediaKind, VideoInfo, sniff
from lightmeter.media.sampling import frame_count
from lightmeter.media.video import MAX_CAPTURES, DecoderLimits, VideoFrame, iter_video, probe_video
from lightmeter.service.backends.base import MAX_SIDE
from lightmeter.service.ingest.allocator import keep_small_blocks
from lightmeter.service.ingest.payload import AssetPayload

__all__ = ["DecodedPictures", "DecodingLimits", "MediaDecoder", "PixelsByView"]

PixelsByView: TypeAlias = Mapping[InputTransform, tuple[NDArray[np.uint8], ...]]
"""The pictures of an asset, each height x width x 3 and not to be written to, by how they are looked at."""


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """What decoding may take, over all requests.

    Attributes:
        decoders: Processes that decode videos at once.
        threads: That decode images at once.
        pixels_in_flight: Of images that are decoded at once; a single larger one is decoded alone. A pixel takes up to
            10 bytes while it is decoded: measured, a palette with transparency takes most.
        slice_frames: Frames of one video that are in memory at once, each up to 3 MB.
        video: Time, memory and pixels of each decoding process.
    """

    decoders: int = os.cpu_count() or 1
    threads: int = field(default_factory=lambda: 2 * process_cpu_count())
    pixels_in_flight: int = 64_000_000
    slice_frames: int = 32
    video: DecoderLimits = field(default_factory=DecoderLimits)


_LIMITS: Final = DecodingLimits()


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPictures:
    """An asset, decoded; of a video, a slice of it.

    Attributes:
        kind: Image or video.
        width, height: Of the original, upright, in pixels.
        duration_s: Of a video, as a whole; None for an image, or where it is not known.
        times_s: When each picture was captured, from the start of the video; None for an image.
        seen: The pictures.
    """

    kind: MediaKind
    width: int
    height: int
    duration_s: float | None
    times_s: tuple[float, ...] | None
    seen: PixelsByView


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


class MediaDecoder:
    """Decodes the assets of one process."""

    def __init__(self, limits: DecodingLimits = _LIMITS) -> None:
        keep_small_blocks()
        self._limits = limits
        self._decoders = asyncio.Semaphore(limits.decoders)
        self._pixels = _Budget(limits.pixels_in_flight)
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="lightmeter-decode")
        # Room that each thread has for a picture whose size is not known yet: most are decoded in the same go.
        self._usual = max(1, limits.pixels_in_flight // limits.threads)

    def close(self) -> None:
        """End the threads when they have done what they are at."""
        self._threads.shutdown(cancel_futures=True)

    async def image(self, film: AssetPayload, views: frozenset[InputTransform]) -> DecodedPictures:
        """Decode an image, and cut views out of it.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge: it cannot be used, and why.
        """
        if sniff(film.head) is None:
            raise UnsupportedMedia("not an image or a video of a known format")
        loop = asyncio.get_running_loop()
        async with self._pixels.taking(self._usual):
            facts, cut = await loop.run_in_executor(self._threads, _developed, film, views, self._usual)
        if cut is None:
            async with self._pixels.taking(facts.width * facts.height):
                facts, cut = await loop.run_in_executor(self._threads, _developed, film, views, None)
        seen = {view: (rgb,) for view, rgb in (cut or {}).items()}
        return DecodedPictures("image", facts.width, facts.height, None, None, seen)

    async def frames_of(self, path: Path, interval_s: int, max_frames: int) -> int:
        """How many frames `video` would capture; `max_frames` 0 means all.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout: as `video`.
        """
        async with self._decoders:
            facts = await probe_video(path, limits=self._limits.video)
        count = frame_count(facts.duration_s, interval_s, max_frames)
        if count > MAX_CAPTURES:
            raise MediaTooLarge(f"The video's {count} frames are more than {MAX_CAPTURES}.")
        return count

    async def video(
        self, path: Path, views: frozenset[InputTransform], interval_s: int, max_frames: int
    ) -> AsyncGenerator[DecodedPictures, None]:
        """Decode the video at `path`, slice by slice, and cut views out of its frames.

        Nothing is open, and no other decoding kept waiting, while the caller looks at what it was given.

        Args:
            path: The file; it must stay as it is until the end.
            views: What is wanted of each frame.
            interval_s: Seconds between captures.
            max_frames: Most captures; 0 means all.

        Yields:
            Slices, in order.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout: it cannot be used, and why; also after some
                slices.
        """
        slices = iter_video(
            path,
            interval_s=interval_s,
            max_frames=max_frames,
            max_side=MAX_SIDE,
            slice_frames=self._limits.slice_frames,
            limits=self._limits.video,
        )
        async with aclosing(slices):
            while (more := await self._next(slices, views)) is not None:
                yield more
                del more  # the next slice must not lie in memory beside this one

    async def _next(
        self, slices: AsyncIterator[tuple[VideoInfo, list[VideoFrame]]], views: frozenset[InputTransform]
    ) -> DecodedPictures | None:
        async with self._decoders:
            try:
                facts, frames = await anext(slices)
            except StopAsyncIteration:
                return None
        times = tuple(frame.time_s for frame in frames)
        seen = await asyncio.get_running_loop().run_in_executor(self._threads, _seen, frames, views)
        return DecodedPictures("video", facts.width, facts.height, facts.duration_s, times, seen)


def _developed(
    film: AssetPayload, views: frozenset[InputTransform], most_pixels: int | None
) -> tuple[ImageInfo, dict[InputTransform, NDArray[np.uint8]] | None]:
    """The measures of an image, and its views unless it has more pixels than there is room for."""
    content = film.content()
    facts = read_image_info(content)
    if most_pixels is not None and facts.width * facts.height > most_pixels:
        return facts, None
    return facts, load_views(content, views)


def _seen(frames: Sequence[VideoFrame], views: frozenset[InputTransform]) -> PixelsByView:
    return {view: tuple(transform_array(frame.rgb, view) for frame in frames) for view in views}
