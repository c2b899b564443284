"""Decodes images and videos, within limits shared by all requests.

Images are decoded in threads, with a limit of pixels at a time. Videos are decoded in processes
(`media.decoder_client`), in slices of a few frames, so that a video of any length needs bounded memory. Each image or
frame is decoded once, and resized or cropped to the inputs that back ends need. So the input of a back end does not
depend on which other back ends a request names.
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
from lightmeter.media.video.decoder_client import DecoderLimits, VideoFrame
from lightmeter.media.video.sample_video import MAX_CAPTURES, iter_video, read_video_info
from lightmeter.media.video.sampling import frame_count
from lightmeter.service.backends.base import MAX_SIDE
from lightmeter.service.ingest.allocator import configure_allocators
from lightmeter.service.ingest.payload import AssetPayload

PixelsByView: TypeAlias = Mapping[InputTransform, tuple[NDArray[np.uint8], ...]]
"""Transform → the transformed image or frames, each a read-only array of height x width x 3."""


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Limits of decoding for all requests together.

    Attributes:
        decoders: Maximum processes that decode videos at once.
        threads: Number of threads that decode images.
        pixels_in_flight: Maximum pixels of all images that are decoded at once; a larger image is decoded alone. A
            pixel takes up to 10 bytes (measured with palette images with transparency).
        slice_frames: Maximum frames of one video in memory at once; a frame takes up to 3 MB.
        video: Limits of time, memory and pixels of each decoder process.
    """

    decoders: int = os.cpu_count() or 1
    threads: int = field(default_factory=lambda: 2 * process_cpu_count())
    pixels_in_flight: int = 64_000_000
    slice_frames: int = 32
    video: DecoderLimits = field(default_factory=DecoderLimits)


_LIMITS: Final = DecodingLimits()


@dataclass(frozen=True, slots=True)
class AssetMetadata:
    """Metadata of a decoded image or video.

    Attributes:
        kind: Image or video.
        width, height: Size in pixels of the image or frame in its upright orientation.
        duration_s: Duration of the whole video, in seconds; None for an image, or if unknown.
        times_s: Time of each captured frame in seconds from the start of the video; None for an image.
    """

    kind: MediaKind
    width: int
    height: int
    duration_s: float | None
    times_s: tuple[float, ...] | None

    @property
    def count(self) -> int:
        """Number of pictures: 1 for an image, or the captured frames of a video."""
        return 1 if self.times_s is None else len(self.times_s)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPictures:
    """Pixels of an image, or of some consecutive frames of a video.

    Attributes:
        metadata: Metadata of the image or video; `times_s` has only the times of the decoded frames.
        pixels_by_view: Transform (scale, crop) → one array for the image, or one for each frame, after this transform.
    """

    metadata: AssetMetadata
    pixels_by_view: PixelsByView


class _PixelBudget:
    """Limits the pixels of images in memory; first come, first served, so that small images do not delay large ones."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._available = total
        self._lock = asyncio.Lock()
        self._released = asyncio.Event()

    @asynccontextmanager
    async def acquire(self, pixels: int) -> AsyncIterator[None]:
        """Reserve `pixels` pixels during the `with` block; wait at its start until enough pixels are free.

        If `pixels` is more than the limit, reserve the whole limit.
        """
        pixels = min(pixels, self._total)
        async with self._lock:
            while self._available < pixels:
                self._released.clear()
                await self._released.wait()
            self._available -= pixels
        try:
            yield
        finally:
            self._available += pixels
            self._released.set()


class MediaDecoder:
    """Decoder of the images and videos of all requests of a process, within the limits `DecodingLimits`."""

    def __init__(self, limits: DecodingLimits = _LIMITS) -> None:
        configure_allocators()
        self._limits = limits
        self._decoders = asyncio.Semaphore(limits.decoders)
        self._pixels = _PixelBudget(limits.pixels_in_flight)
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="lightmeter-decode")
        # Pixels reserved for a picture before its size is known; most pictures are not larger.
        self._pixels_per_thread = max(1, limits.pixels_in_flight // limits.threads)

    def close(self) -> None:
        """Stop the threads that decode images; each finishes its current image first."""
        self._threads.shutdown(cancel_futures=True)

    async def decode_image(self, payload: AssetPayload, views: frozenset[InputTransform]) -> DecodedPictures:
        """Decode the image `payload`, and apply each of the transforms (scale, crop) `views` to it.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge: the image cannot be decoded.
        """
        if sniff(payload.head) is None:
            raise UnsupportedMedia("not an image or a video of a known format")
        loop = asyncio.get_running_loop()
        async with self._pixels.acquire(self._pixels_per_thread):
            info, pixels = await loop.run_in_executor(
                self._threads, _decode_image, payload, views, self._pixels_per_thread
            )
        if pixels is None:  # too large for one thread
            async with self._pixels.acquire(info.width * info.height):
                info, pixels = await loop.run_in_executor(self._threads, _decode_image, payload, views, None)
        pixels_by_view = {view: (rgb,) for view, rgb in (pixels or {}).items()}
        return DecodedPictures(AssetMetadata("image", info.width, info.height, None, None), pixels_by_view)

    async def count_frames(self, path: Path, interval_s: int, max_frames: int) -> int:
        """Return the number of frames that `decode_video` captures with these arguments.

        Args:
            path: Video file.
            interval_s: Seconds between captured frames.
            max_frames: Maximum number of frames; 0: no limit.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout: the video cannot be decoded.
        """
        async with self._decoders:
            info = await read_video_info(path, limits=self._limits.video)
        count = frame_count(info.duration_s, interval_s, max_frames)
        if count > MAX_CAPTURES:
            raise MediaTooLarge(f"The video's {count} frames are more than {MAX_CAPTURES}.")
        return count

    async def decode_video(
        self, path: Path, views: frozenset[InputTransform], interval_s: int, max_frames: int
    ) -> AsyncGenerator[DecodedPictures, None]:
        """Decode a video in slices of some frames, and apply transforms to each frame; yield the slices in order.

        Args:
            path: Video file; it must not change meanwhile.
            views: Transforms to apply.
            interval_s: Seconds between captured frames.
            max_frames: Maximum number of frames; 0: no limit.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout: the video cannot be decoded; some
                slices may have been yielded before the error.
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
            while (pictures := await self._next_slice(slices, views)) is not None:
                yield pictures
                del pictures  # frees its memory before the next slice is decoded

    async def _next_slice(
        self, slices: AsyncIterator[tuple[VideoInfo, list[VideoFrame]]], views: frozenset[InputTransform]
    ) -> DecodedPictures | None:
        async with self._decoders:
            try:
                info, frames = await anext(slices)
            except StopAsyncIteration:
                return None
        times = tuple(frame.time_s for frame in frames)
        pixels = await asyncio.get_running_loop().run_in_executor(self._threads, _transform_frames, frames, views)
        return DecodedPictures(AssetMetadata("video", info.width, info.height, info.duration_s, times), pixels)


def _decode_image(
    payload: AssetPayload, views: frozenset[InputTransform], max_pixels: int | None
) -> tuple[ImageInfo, dict[InputTransform, NDArray[np.uint8]] | None]:
    """Return the metadata of the image `payload`, and its pixels by transform (scale, crop), for each of `views`.

    The pixels are None if the image has more than `max_pixels` pixels; `max_pixels` None: no limit.
    """
    content = payload.content()
    info = read_image_info(content)
    if max_pixels is not None and info.width * info.height > max_pixels:
        return info, None
    return info, load_views(content, views)


def _transform_frames(frames: Sequence[VideoFrame], views: frozenset[InputTransform]) -> PixelsByView:
    return {view: tuple(transform_array(frame.rgb, view) for frame in frames) for view in views}
