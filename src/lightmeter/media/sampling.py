"""Which frames of a video are looked at, and so paid for: one rule for estimate, pre-check and service."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, floor, isfinite
from typing import Final

__all__ = [
    "MAX_DURATION_S",
    "WHOLE_SECONDS_SQL",
    "duration_of",
    "frame_count",
    "frame_indices",
    "frame_times",
    "indices_at",
]

MAX_DURATION_S: Final = 7 * 86_400.0
"""Longest duration that is believed, in seconds: a week. Broken headers claim centuries."""

TIME_TOLERANCE_S: Final = 1e-3
"""Rounding error of a time in a container, in seconds, that changes nothing.

A frame that starts this much after the asked time is still the frame of that time, and a video that ends this much
after a capture time ends at that time. Containers count in milliseconds or finer, and the decoder's time stamps are
single floats, which are exact to a millisecond up to two hours.
"""

WHOLE_SECONDS_SQL: Final = (
    f"CASE WHEN duration_s > 0 THEN max(1, CAST(duration_s - {TIME_TOLERANCE_S} AS INTEGER) "
    f"+ (duration_s - {TIME_TOLERANCE_S} > CAST(duration_s - {TIME_TOLERANCE_S} AS INTEGER))) END"
)
"""SQL for the column `duration_s`, rounded up to whole seconds as `frame_count` rounds, at least 1; null if not known.
Rows with the same value have the same number of captures, whatever the interval, because intervals are whole seconds.
"""


def duration_of(stamped_s: float | None, frames: int = 0, fps: float = 0.0) -> float | None:
    """The duration of a video in seconds, to a tenth of a millisecond, or None where nothing says it credibly.

    Every duration that is read from media or given by others goes through here. A duration is credible if it is a
    number above 0 and at most `MAX_DURATION_S`. Time stamps that are absent or absurd give way to frames / rate.

    Args:
        stamped_s: What the time stamps say; None if they say nothing.
        frames: How many frames there are; 0 if that is not known.
        fps: Frames a second; 0 if that is not known.
    """
    by_rate_s = frames / fps if isfinite(fps) and fps > 0 else None
    for seconds in (stamped_s, by_rate_s):
        if seconds is not None and 0 < seconds <= MAX_DURATION_S:  # false for NaN
            return max(round(seconds, 4), 1e-4)
    return None


def frame_count(duration_s: float | None, interval_s: int, max_frames: int) -> int:
    """How many frames are captured: min(max_frames, max(1, ceil(duration / interval))).

    Captures lie at 0, interval, 2 x interval, … strictly before the end, so that 600 s at an interval of 1 s are 600
    frames. The end is exact to `TIME_TOLERANCE_S`: 10.000000001 s are 10 frames. A video of unknown duration has the
    one capture at 0 s.

    Args:
        duration_s: Length of the video in seconds; None when not known.
        interval_s: Seconds between captures, at least 1.
        max_frames: Upper limit; 0 means none.

    Raises:
        ValueError: an interval below 1, a negative limit, or a length that is no number.
    """
    length_s = 0.0 if duration_s is None else duration_s
    if interval_s < 1 or max_frames < 0 or not isfinite(length_s):
        raise ValueError(f"no sampling for {duration_s} s every {interval_s} s up to {max_frames} frames")
    captures = max(1, ceil((length_s - TIME_TOLERANCE_S) / interval_s))
    return min(max_frames, captures) if max_frames else captures


def frame_times(duration_s: float | None, interval_s: int, max_frames: int) -> list[float]:
    """When frames are captured, in seconds from the start; arguments as in `frame_count`."""
    return [float(n * interval_s) for n in range(frame_count(duration_s, interval_s, max_frames))]


def frame_indices(times: Sequence[float], fps: float, frame_count: int) -> list[int]:
    """Which frames are on screen at `times`, at a constant rate; times past the end give the last frame.

    Raises:
        ValueError: no frames, or no rate.
    """
    if fps <= 0 or frame_count < 1:
        raise ValueError(f"no frames to pick from: {frame_count} at {fps} a second")
    return [max(0, min(floor((time + TIME_TOLERANCE_S) * fps), frame_count - 1)) for time in times]


def indices_at(times: Sequence[float], starts: Sequence[float]) -> list[int]:
    """Which frames are on screen at `times`, at any rate; `starts` is when each frame begins, ascending.

    Phones record at a varying rate: there, index = time x rate can be seconds off. Times are counted from the
    first frame, which need not start at 0.

    Raises:
        ValueError: no frames.
    """
    if not starts:
        raise ValueError("no frames to pick from")
    return [max(0, bisect_right(starts, time + starts[0] + TIME_TOLERANCE_S) - 1) for time in times]
