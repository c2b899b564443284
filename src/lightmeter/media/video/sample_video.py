"""Reads metadata of videos, and frames at regular intervals or given times; the decoder runs in a child process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from lightmeter.errors import MediaTooLarge
from lightmeter.media.media_info import VideoInfo
from lightmeter.media.video.decoder_client import DecoderLimits, VideoFrame, decoder_session
from lightmeter.media.video.sampling import frame_count, frame_times

MAX_CAPTURES: Final = 86_400
"""Most captured frames of a video: a day at one a second. More raise MediaTooLarge.

A broken header may claim any length of the video.
"""

_DEFAULT_LIMITS: Final = DecoderLimits()


async def read_video_info(path: Path, *, limits: DecoderLimits = _DEFAULT_LIMITS) -> VideoInfo:
    """Return the metadata of a video; its first frame is decoded within `limits`.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout, UsageError: as `decoder_session`.
    """
    async with decoder_session(path, limits) as decoder:
        return decoder.info


async def sample_video(
    path: Path,
    *,
    interval_s: int,
    max_frames: int,
    max_side: int | None = None,
    limits: DecoderLimits = _DEFAULT_LIMITS,
) -> tuple[VideoInfo, list[VideoFrame]]:
    """Return the metadata of a video, and the frames that it shows at 0 s and every `interval_s` seconds after.

    Frames are chosen by their time stamps, so the frame rate may vary. The frames are upright, and so are the width and
    height in the metadata.

    Args:
        path: The video file.
        interval_s: Seconds between captured frames, at least 1.
        max_frames: Most frames; 0 means no limit.
        max_side: Larger frames are shrunk to a longest side of this many pixels; None: frames keep their size.
        limits: Time and memory of the decoder.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTimeout, UsageError: as `decoder_session`.
        MediaTooLarge: the frames need more pixels, memory or bytes than `limits` allow, or exceed `MAX_CAPTURES`.
        ValueError: `interval_s` is below 1, or `max_frames` is negative.
    """
    frame_count(0.0, interval_s, max_frames)  # checks the arguments
    async with decoder_session(path, limits) as decoder:
        times = _capture_times(decoder.info, interval_s, max_frames)
        return decoder.info, await decoder.frames(times, max_side)


async def iter_video(
    path: Path,
    *,
    interval_s: int,
    max_frames: int,
    max_side: int | None = None,
    slice_frames: int,
    limits: DecoderLimits = _DEFAULT_LIMITS,
) -> AsyncGenerator[tuple[VideoInfo, list[VideoFrame]], None]:
    """Yield the frames of `sample_video` in slices, so that memory is bounded for videos of any length.

    Each slice is decoded in a new process, which has ended when the slice is yielded. Starting a process takes about
    0.15 s. Errors are those of `sample_video`; an error may come after some slices.

    Args:
        path: The video file.
        interval_s: Seconds between captured frames, at least 1.
        max_frames: Most frames; 0 means no limit.
        max_side: Larger frames are shrunk to a longest side of this many pixels; None: frames keep their size.
        slice_frames: Number of frames in a slice.
        limits: Time and memory of the decoder, for each slice.

    Yields:
        The metadata, which is the same each time, and the frames of the slice.
    """
    frame_count(0.0, interval_s, max_frames)
    first, count = 0, 1
    while first < count:
        async with decoder_session(path, limits) as decoder:
            times = _capture_times(decoder.info, interval_s, max_frames)
            count = len(times)
            info, frames = decoder.info, await decoder.frames(times[first : first + slice_frames], max_side)
        yield info, frames
        del frames  # two slices must not be in memory at the same time
        first += slice_frames


async def iter_frames_at(
    path: Path,
    times_s: Sequence[float],
    *,
    max_side: int | None = None,
    slice_frames: int,
    limits: DecoderLimits = _DEFAULT_LIMITS,
) -> AsyncGenerator[list[VideoFrame], None]:
    """Yield in slices the frames that a video shows at the times `times_s`; raise the errors of `decoder_session`.

    Args:
        path: The video file.
        times_s: Times in seconds from the start, ascending.
        max_side: Larger frames are shrunk to a longest side of this many pixels; None: frames keep their size.
        slice_frames: Number of frames in a slice.
        limits: Time and memory of the decoder, for each slice.
    """
    for first in range(0, len(times_s), slice_frames):
        async with decoder_session(path, limits) as decoder:
            frames = await decoder.frames(list(times_s[first : first + slice_frames]), max_side)
        yield frames
        del frames


def _capture_times(info: VideoInfo, interval_s: int, max_frames: int) -> list[float]:
    """Return the times, in seconds from the start, at which frames are captured: 0 and every `interval_s` seconds.

    The end of the video is not among them. There are at most `max_frames` times; 0 means no limit.

    Raises:
        MediaTooLarge: there are more than `MAX_CAPTURES` times.
    """
    count = frame_count(info.duration_s, interval_s, max_frames)
    if count > MAX_CAPTURES:
        raise MediaTooLarge(
            f"The video's {count} frames are more than {MAX_CAPTURES}.", hint="Capture fewer frames: set a limit."
        )
    return frame_times(info.duration_s, interval_s, count)
