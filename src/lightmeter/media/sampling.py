"""Which frames of a video are looked at, and so paid for: one rule for estimate, pre-check and service."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import floor, isfinite

__all__ = ["frame_count", "frame_indices", "frame_times", "indices_at"]

# A frame that starts a hair after the asked time, by rounding alone, is still the frame of that time.
_SLACK_S = 1e-3


def frame_count(duration_s: float, interval_s: int, max_frames: int) -> int:
    """How many frames are captured: one at 0 s and one at each further interval, at least 1.

    The service's rule: "frames are extracted every `capture_interval` seconds, up to `max_frames`".

    Args:
        duration_s: Length of the video; anything below 0 counts as 0.
        interval_s: Seconds between captures, at least 1.
        max_frames: Upper limit; 0 means none.

    Raises:
        ValueError: an interval below 1, a negative limit, or a length that is no number.
    """
    if interval_s < 1 or max_frames < 0 or not isfinite(duration_s):
        raise ValueError(f"no sampling for {duration_s} s every {interval_s} s up to {max_frames} frames")
    captures = floor(max(duration_s, 0.0) / interval_s) + 1
    return min(max_frames, captures) if max_frames else captures


def frame_times(duration_s: float, interval_s: int, max_frames: int) -> list[float]:
    """When frames are captured, in seconds from the start; arguments as in `frame_count`."""
    return [float(n * interval_s) for n in range(frame_count(duration_s, interval_s, max_frames))]


def frame_indices(times: Sequence[float], fps: float, frame_count: int) -> list[int]:
    """Which frames are on screen at `times`, at a constant rate; times past the end give the last frame.

    Raises:
        ValueError: no frames, or no rate.
    """
    if fps <= 0 or frame_count < 1:
        raise ValueError(f"no frames to pick from: {frame_count} at {fps} a second")
    return [max(0, min(floor((time + _SLACK_S) * fps), frame_count - 1)) for time in times]


def indices_at(times: Sequence[float], starts: Sequence[float]) -> list[int]:
    """Which frames are on screen at `times`, at any rate; `starts` is when each frame begins, ascending.

    Phones record at a varying rate: there, index = time x rate can be seconds off. Times are counted from the
    first frame, which need not start at 0.

    Raises:
        ValueError: no frames.
    """
    if not starts:
        raise ValueError("no frames to pick from")
    return [max(0, bisect_right(starts, time + starts[0] + _SLACK_S) - 1) for time in times]
