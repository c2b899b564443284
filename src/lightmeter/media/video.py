"""Measures and sampled frames of videos; the decoder runs in a child process, which can be killed at any time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from lightmeter.errors import MediaTooLarge
from lightmeter.media.decoder_client import DecoderLimits, VideoFrame, decoder_session
from lightmeter.media.media_info import VideoInfo
from lightmeter.media.sampling import frame_count, frame_times

__all__ = ["MAX_CAPTURES", "DecoderLimits", "VideoFrame", "iter_video", "probe_video", "sample_video"]

MAX_CAPTURES: Final = 86_400
"""Most frames that are captured of one video, those of a day at one a second: a broken header may claim any length."""

_DEFAULT_LIMITS: Final = DecoderLimits()


async def probe_video(path: Path, *, limits: DecoderLimits = _DEFAULT_LIMITS) -> VideoInfo:
    """Return the measures of a video whose first frame decodes.

    Raises:
        UnsupportedMedia: the container is not supported.
        BrokenMedia: the file is missing, does not open, or has no frame that decodes.
        MediaTooLarge: decoding needs more pixels or memory than `limits` allow.
        MediaTimeout: decoding takes longer than `limits` allow.
        UsageError: no decoder is installed.
    """
    async with decoder_session(path, limits) as decoder:
        return decoder.facts


async def sample_video(
    path: Path,
    *,
    interval_s: int,
    max_frames: int,
    max_side: int | None = None,
    limits: DecoderLimits = _DEFAULT_LIMITS,
) -> tuple[VideoInfo, list[VideoFrame]]:
    """Return the measures of a video, and the frames that are shown at 0 s and at each further interval.

    Frames are chosen by their time stamps, which may vary in distance. The decoder applies the rotation that phones
    note in the container: frames and measures are upright.

    Args:
        path: The video file.
        interval_s: Seconds between captures, at least 1.
        max_frames: Upper limit; 0 means none but that of `limits.result_bytes`.
        max_side: Longest side of the frames, in pixels; the child process shrinks them. None: no limit.
        limits: Time and memory of the decoder.

    Raises:
        UnsupportedMedia: the container is not supported.
        BrokenMedia: the file is missing, does not open, or a frame does not decode.
        MediaTooLarge: decoding needs more pixels, memory or frames than `limits` allow.
        MediaTimeout: decoding takes longer than `limits` allow.
        UsageError: no decoder is installed.
        ValueError: the interval is below 1, or the limit is negative.
    """
    frame_count(0.0, interval_s, max_frames)  # checks the arguments
    async with decoder_session(path, limits) as decoder:
        times = _times(decoder.facts, interval_s, max_frames)
        return decoder.facts, await decoder.frames(times, max_side)


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

    Each slice has a decoder process of its own, which has ended when the slice is yielded: no process waits for a slow
    caller. Starting one takes about 0.15 s.

    Args:
        path: The video file; it must not change before the last slice.
        interval_s: Seconds between captures, at least 1.
        max_frames: Upper limit; 0 means none but `MAX_CAPTURES`.
        max_side: Longest side of the frames, in pixels; None: no limit.
        slice_frames: Frames in a slice, at least 1.
        limits: Time and memory of the decoder of each slice.

    Yields:
        The measures, the same each time, and the frames of the slice.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTooLarge, MediaTimeout, UsageError, ValueError: as `sample_video`; also
            after some slices.
    """
    frame_count(0.0, interval_s, max_frames)
    first, count = 0, 1
    while first < count:
        async with decoder_session(path, limits) as decoder:
            times = _times(decoder.facts, interval_s, max_frames)
            count = len(times)
            facts, frames = decoder.facts, await decoder.frames(times[first : first + slice_frames], max_side)
        yield facts, frames
        del frames  # two slices must not be in memory at the same time
        first += slice_frames


def _times(facts: VideoInfo, interval_s: int, max_frames: int) -> list[float]:
    """Return the capture times; they are counted first, because a header may claim a length of centuries."""
    count = frame_count(facts.duration_s, interval_s, max_frames)
    if count > MAX_CAPTURES:
        raise MediaTooLarge(
            f"The video's {count} frames are more than {MAX_CAPTURES}.", hint="Capture fewer frames: name a limit."
        )
    return frame_times(facts.duration_s, interval_s, count)
