"""Chooses the frames that are sent in place of a video (`--video frames`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightmeter.errors import MediaError
from lightmeter.media.video.distinct_frames import DistinctFrame, find_distinct_frames
from lightmeter.prechecks.finding import Finding


async def choose_frames(
    path: Path, *, capture_interval_s: int, max_frames: int, max_distinct: int
) -> tuple[Sequence[DistinctFrame], Finding]:
    """Choose the frames to send in place of a video; also return a finding that tells the user how many they are.

    If the frames cannot be decoded and compared, return no frames: then the video is sent whole.

    Args:
        path: The video file.
        capture_interval_s: Seconds between captured frames.
        max_frames: Most captured frames; 0 means no limit.
        max_distinct: Most frames to send; 0 means no limit.
    """
    try:
        frames, captured = await find_distinct_frames(
            path, interval_s=capture_interval_s, max_frames=max_frames, max_distinct=max_distinct
        )
    except MediaError as error:
        return (), Finding("distinct_frames", "warning", f"The video is sent whole. {error}")
    message = f"{len(frames)} of {captured} captured frames are sent; the others are near-identical"
    message += " or over the limit." if max_distinct and len(frames) == max_distinct else "."
    facts = {
        "captured": captured,
        "sent_frames": [one.frame for one in frames],
        "sent_at_s": [one.time_s for one in frames],
    }
    return frames, Finding("distinct_frames", "info", message, len(frames), facts)
