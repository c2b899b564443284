"""Metadata of videos and frames taken from them at intervals; the decoder runs in a child process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from lightmeter.errors import MediaTooLarge
from lightmeter.media.media_info import VideoInfo
from lightmeter.media.video.decoder_client import DecoderLimits, VideoFrame, decoder_session
from lightmeter.media.video.sampling import frame_count, frame_times

MAX_CAPTURES: Final = 86_400
"""Maximum number of captured frames of a video: a day at one a second. A broken header may claim any length."""

_DEFAULT_LIMITS: Final = DecoderLimits()


async def read_video_info(path: Path, *, limits: DecoderLimits = _DEFAULT_LIMITS) -> VideoInfo:
    """Return the metadata of a video; decode its first frame within `limits`; raise the errors of `decoder_session`."""
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

    Frames are chosen by their time stamps, so the frame rate may vary. They are upright, as are width and height.

    Args:
        path: The video file.
        interval_s: Seconds between captured frames, at least 1.
        max_frames: Maximum number of frames; 0 means as many as `limits.result_bytes` and `MAX_CAPTURES` allow.
        max_side: Longest side of the frames, in pixels; None: no limit.
        limits: Time and memory of the decoder.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTimeout, UsageError: as `decoder_session`.
        MediaTooLarge: decoding needs more pixels, memory or frames than `limits` allow.
        ValueError: the interval is below 1, or the limit is negative.
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

    Each slice of `slice_frames` has a decoder process of its own, which has ended when the slice is yielded. Starting
    one takes about 0.15 s. The other arguments and the errors are those of `sample_video`; an error may come after
    some slices, and `limits` apply to each slice.

    Yields:
        The metadata, the same each time, and the frames of the slice.
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
    """Yield the frames that a video shows at given times in slices; raise the errors of `decoder_session`.

    Args:
        path: The video file.
        times_s: Times in seconds from the start, ascending.
        max_side: Longest side of the frames, in pixels; None: no limit.
        slice_frames: Frames in a slice.
        limits: Time and memory of the decoder, for each slice.
    """
    for first in range(0, len(times_s), slice_frames):
        async with decoder_session(path, limits) as decoder:
            frames = await decoder.frames(list(times_s[first : first + slice_frames]), max_side)
        yield frames
        del frames


def _capture_times(info: VideoInfo, interval_s: int, max_frames: int) -> list[float]:
    """Return the times, in seconds from the start, at which frames are captured: 0 and every `interval_s` seconds.

    There are at most `max_frames`; 0 means no limit.

    Raises:
        MediaTooLarge: there are more than `MAX_CAPTURES` times.
    """
    count = frame_count(info.duration_s, interval_s, max_frames)
    if count > MAX_CAPTURES:
        raise MediaTooLarge(
            f"The video's {count} frames are more than {MAX_CAPTURES}.", hint="Capture fewer frames: set a limit."
        )
    return frame_times(info.duration_s, interval_s, count)
