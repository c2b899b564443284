"""Decodes images and videos, within limits shared by all requests.

Images are decoded in threads. The total of pixels that are decoded at the same time is limited. Videos are decoded in
processes (`media.decoder_client`), a few frames at a time, so that a long video needs no more memory than a short one.
Each image or frame is decoded once, and then resized or cropped for each back end that analyzes it. So the input of a
back end does not depend on which other back ends a request names.
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
from lightmeter.media.image import load_transformed, read_image_info
from lightmeter.media.image_transforms import InputTransform, transform_array
from lightmeter.media.media_info import ImageInfo, MediaKind, VideoInfo, sniff
from lightmeter.media.video.decoder_client import DecoderLimits, VideoFrame
from lightmeter.media.video.sample_video import MAX_CAPTURES, iter_video, read_video_info
from lightmeter.media.video.sampling import frame_count
from lightmeter.service.backends.base import MAX_SIDE
from lightmeter.service.ingest.allocator import configure_allocators
from lightmeter.service.ingest.asset_content import AssetContent

PixelsByTransform: TypeAlias = Mapping[InputTransform, tuple[NDArray[np.uint8], ...]]
"""Transform (scale, crop) → pixels after this transform: one array for an image, or one array for each frame.

Each array is read-only and has the shape (height, width, 3).
"""


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Limits of decoding for all requests together.

    Attributes:
        decoders: Maximum number of processes that decode videos at the same time.
        threads: Number of threads that decode images.
        pixels_in_flight: Maximum total of pixels of the images that are decoded at the same time. If an image has more
            pixels, no other image is decoded at the same time. A pixel takes up to 10 bytes of memory (measured with
            palette images with transparency), 12 in TIFF of floating-point numbers and in JPEG without an end marker,
            16 in 16-bit RGB PNG with a transparent color.
        slice_frames: Maximum frames of one video in memory at the same time. A frame takes up to 3 MB.
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
        duration_s: Duration of the whole video in seconds. None for an image, or if the duration is unknown.
        times_s: Time of each frame that was taken from the video, in seconds from its start. None for an image.
    """

    kind: MediaKind
    width: int
    height: int
    duration_s: float | None
    times_s: tuple[float, ...] | None

    @property
    def count(self) -> int:
        """Number of pictures: 1 for an image, or the number of frames that were taken from a video."""
        return 1 if self.times_s is None else len(self.times_s)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPictures:
    """Pixels of an image, or of some consecutive frames of a video.

    Attributes:
        metadata: Metadata of the image or video; `times_s` has only the times of the decoded frames.
        pixels_by_transform: Transform (scale, crop) → pixels after this transform: one array for the image, or one
            array for each frame.
    """

    metadata: AssetMetadata
    pixels_by_transform: PixelsByTransform


class _PixelBudget:
    """Limits the total of pixels of the images that are decoded at the same time.

    Reservations are granted in the order of the calls. So a large image does not wait while later small ones go first.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._available = total
        self._lock = asyncio.Lock()
        self._released = asyncio.Event()

    @asynccontextmanager
    async def acquire(self, pixels: int) -> AsyncIterator[None]:
        """Reserve `pixels` pixels for the `with` block. The block starts when enough pixels are free.

        If `pixels` is more than the limit, reserve as many pixels as the limit.
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
    """Decodes the images and videos of all requests of this process, within the limits of `DecodingLimits`."""

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

    async def decode_image(self, content: AssetContent, transforms: frozenset[InputTransform]) -> DecodedPictures:
        """Decode the image `content`, and return its pixels after each of the `transforms` (scale, crop).

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge: the image cannot be decoded.
        """
        if sniff(content.head) is None:
            raise UnsupportedMedia("not an image or a video of a known format")
        loop = asyncio.get_running_loop()
        async with self._pixels.acquire(self._pixels_per_thread):
            info, pixels = await loop.run_in_executor(
                self._threads, _decode_image, content, transforms, self._pixels_per_thread
            )
        if pixels is None:  # too large for one thread
            async with self._pixels.acquire(info.width * info.height):
                info, pixels = await loop.run_in_executor(self._threads, _decode_image, content, transforms, None)
        pixels_by_transform = {transform: (rgb,) for transform, rgb in (pixels or {}).items()}
        return DecodedPictures(AssetMetadata("image", info.width, info.height, None, None), pixels_by_transform)

    async def count_frames(self, path: Path, interval_s: int, max_frames: int) -> int:
        """Return how many frames `decode_video` takes from a video with these arguments, without decoding them.

        Args:
            path: Video file.
            interval_s: Seconds between the frames that are taken.
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
        self, path: Path, transforms: frozenset[InputTransform], interval_s: int, max_frames: int
    ) -> AsyncGenerator[DecodedPictures, None]:
        """Decode frames of a video, and yield them in order, in slices of `DecodingLimits.slice_frames` frames.

        Args:
            path: Video file. It must not change while it is decoded.
            transforms: Transforms (scale, crop). Each of them is applied to each frame.
            interval_s: Seconds between the frames that are taken.
            max_frames: Maximum number of frames; 0: no limit.

        Raises:
            UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout: the video cannot be decoded. Some slices may
                have been yielded before the error.
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
            while (pictures := await self._next_slice(slices, transforms)) is not None:
                yield pictures
                del pictures  # frees its memory before the next slice is decoded

    async def _next_slice(
        self, slices: AsyncIterator[tuple[VideoInfo, list[VideoFrame]]], transforms: frozenset[InputTransform]
    ) -> DecodedPictures | None:
        async with self._decoders:
            try:
                info, frames = await anext(slices)
            except StopAsyncIteration:
                return None
        times = tuple(frame.time_s for frame in frames)
        pixels = await asyncio.get_running_loop().run_in_executor(self._threads, _transform_frames, frames, transforms)
        return DecodedPictures(AssetMetadata("video", info.width, info.height, info.duration_s, times), pixels)


def _decode_image(
    content: AssetContent, transforms: frozenset[InputTransform], max_pixels: int | None
) -> tuple[ImageInfo, dict[InputTransform, NDArray[np.uint8]] | None]:
    """Return the metadata of the image `content`, and its pixels after each of the `transforms` (scale, crop).

    If the image has more than `max_pixels` pixels, do not decode it: return None in place of the pixels. None as
    `max_pixels` means that an image of any size is decoded.
    """
    data = content.read()
    info = read_image_info(data)
    if max_pixels is not None and info.width * info.height > max_pixels:
        return info, None
    return info, load_transformed(data, transforms)


def _transform_frames(frames: Sequence[VideoFrame], transforms: frozenset[InputTransform]) -> PixelsByTransform:
    return {transform: tuple(transform_array(frame.rgb, transform) for frame in frames) for transform in transforms}
