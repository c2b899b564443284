"""Videos: measured and sampled by a decoder in a process of its own, which can be ended at any moment."""

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
"""Most frames that are captured of one video, a day at one a second: a header may claim any length."""

_DEFAULT_LIMITS: Final = DecoderLimits()


async def probe_video(path: Path, *, limits: DecoderLimits = _DEFAULT_LIMITS) -> VideoInfo:
    """Measure a video and prove that its first frame decodes.

    Raises:
        UnsupportedMedia: not a container that is read here.
        BrokenMedia: missing, or does not open, or has no frame that decodes.
        MediaTooLarge: more pixels or memory than `limits` allow.
        MediaTimeout: more time than `limits` allow.
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
    """Measure a video and decode the frames on screen at 0 s and at each further interval.

    Which frames, follows the frames' own time stamps, so a varying rate is no trouble. A rotation noted in the
    container, as phones do, is applied by the decoder: frames and facts are upright.

    Args:
        path: The file.
        interval_s: Seconds between captures, at least 1.
        max_frames: Upper limit; 0 means none but that of `limits.result_bytes`.
        max_side: Shrink frames so that neither side is longer; done in the child, so less is sent and held.
        limits: What the decoding may take.

    Raises:
        UnsupportedMedia: not a container that is read here.
        BrokenMedia: missing, or does not open, or a frame does not decode.
        MediaTooLarge: more pixels, memory or frames than `limits` allow.
        MediaTimeout: more time than `limits` allow.
        UsageError: no decoder is installed.
        ValueError: an interval below 1 or a negative limit.
    """
    frame_count(0.0, interval_s, max_frames)  # nonsense is the caller's mistake, and not to be blamed on the video
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
    """The frames of `sample_video`, so many at a time: videos of any length in bounded memory.

    Each slice has a decoder of its own, which has ended when the slice is handed over: `limits` hold for each, and
    whoever takes long to look at a slice, or never asks for the next, keeps no process waiting. Starting one costs
    about 0.15 s.

    Args:
        path: The file; it must stay as it is until the last slice.
        interval_s: Seconds between captures, at least 1.
        max_frames: Upper limit; 0 means none but `MAX_CAPTURES`.
        max_side: Shrink frames so that neither side is longer.
        slice_frames: How many frames at a time, at least 1.
        limits: What the decoding of each slice may take.

    Yields:
        The facts, the same each time, and the frames of the slice.

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
        del frames  # the next slice must not lie in memory beside this one
        first += slice_frames


def _times(facts: VideoInfo, interval_s: int, max_frames: int) -> list[float]:
    """When frames are captured; counted before they are listed, as a header may claim a length of centuries."""
    count = frame_count(facts.duration_s, interval_s, max_frames)
    if count > MAX_CAPTURES:
        raise MediaTooLarge(
            f"The video's {count} frames are more than {MAX_CAPTURES}.", hint="Capture fewer frames: name a limit."
        )
    return frame_times(facts.duration_s, interval_s, count)
