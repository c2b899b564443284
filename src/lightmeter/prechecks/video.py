"""Whether a video file is worth sending: it opens, and the frames that would be captured show something."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from lightmeter.errors import BrokenMedia, MediaError
from lightmeter.media.image import is_blank
from lightmeter.media.media_info import VideoInfo
from lightmeter.media.sampling import frame_count
from lightmeter.media.video import VideoFrame, sample_video
from lightmeter.prechecks.finding import Finding

__all__ = ["MAX_CHECKED_FRAMES", "check_video"]

MAX_CHECKED_FRAMES: Final = 60
"""With no limit on frames, a long video has thousands: the first of them are looked at."""

_LOOK_SIDE: Final = 256


async def check_video(
    path: Path, *, capture_interval_s: int, max_frames: int
) -> tuple[VideoInfo | None, list[Finding]]:
    """Measure a video and look at the frames that would be captured; its facts, None if there are none."""
    try:
        facts, frames = await sample_video(
            path,
            interval_s=capture_interval_s,
            max_frames=min(max_frames or MAX_CHECKED_FRAMES, MAX_CHECKED_FRAMES),
            max_side=_LOOK_SIDE,
        )
    except BrokenMedia as error:
        return None, [Finding("decode", "error", str(error))]
    except MediaError as error:
        # Too much work, or a format unknown here: the service's decoder may do better.
        return None, [Finding("decode", "warning", f"{error} The service may still read it.")]
    captured = None
    message = "Decodes; its time stamps and rate are absurd: its length, and so its price, is not known."
    if facts.duration_s is not None:
        captured = frame_count(facts.duration_s, capture_interval_s, max_frames)
        message = f"Decodes; {captured} frames would be captured."
    measures = {
        "width": facts.width,
        "height": facts.height,
        "duration_s": facts.duration_s,
        "fps": facts.fps,
        "frame_count": facts.frame_count,
        "captured_frames": captured,
        "size_bytes": (await asyncio.to_thread(path.stat)).st_size,
    }
    decodes = Finding("decode", "info" if captured else "warning", message, captured, measures)
    return facts, [decodes, *_judge_frames(frames)]


def _judge_frames(frames: list[VideoFrame]) -> list[Finding]:
    blank = [frame.time_s for frame in frames if is_blank(frame.rgb)]
    if not blank:
        return []
    share = len(blank) / len(frames)
    if len(blank) == len(frames):
        return [Finding("frames", "error", "Every sampled frame is blank.", share, {"blank_at_s": blank})]
    message = f"{len(blank)} of {len(frames)} sampled frames are blank."
    return [Finding("frames", "warning", message, share, {"blank_at_s": blank})]
