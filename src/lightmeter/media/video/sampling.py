"""Rules for which frames of a video are captured and charged. Estimates, pre-checks and the service share them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, floor, isfinite
from typing import Final

MAX_DURATION_S: Final = 7 * 86_400.0
"""Longest plausible duration of a video, in seconds: a week. Broken headers claim centuries, which are ignored."""

TIME_TOLERANCE_S: Final = 1e-3
"""Times in video files that differ by at most this many seconds count as equal, because they are rounded.

Video files count in milliseconds or finer. The decoder's time stamps are 32-bit floats, which are exact to a
millisecond up to two hours.
"""

WHOLE_SECONDS_SQL: Final = (
    f"CASE WHEN duration_s > 0 THEN max(1, CAST(duration_s - {TIME_TOLERANCE_S} AS INTEGER) "
    f"+ (duration_s - {TIME_TOLERANCE_S} > CAST(duration_s - {TIME_TOLERANCE_S} AS INTEGER))) END"
)
"""SQL expression for `duration_s` rounded up to whole seconds, at least 1; null if the duration is unknown.

It rounds as `frame_count` does. Videos with the same value have the same number of captured frames, because intervals
are whole seconds too.
"""


def duration_of(stamped_s: float | None, frames: int = 0, fps: float = 0.0) -> float | None:
    """Return the plausible duration of a video in seconds, rounded to a tenth of a millisecond; None if it is unknown.

    A duration is plausible if it is above 0 and at most `MAX_DURATION_S`. If `stamped_s` is not plausible,
    `frames / fps` takes its place.

    Args:
        stamped_s: Duration by the time stamps, in seconds; None if there are no time stamps.
        frames: Number of frames; 0 if unknown.
        fps: Frames a second; 0 if unknown.
    """
    by_rate_s = frames / fps if isfinite(fps) and fps > 0 else None
    for seconds in (stamped_s, by_rate_s):
        if seconds is not None and 0 < seconds <= MAX_DURATION_S:  # false for NaN
            return max(round(seconds, 4), 1e-4)
    return None


def frame_count(duration_s: float | None, interval_s: int, max_frames: int) -> int:
    """Return the number of captured frames: min(max_frames, max(1, ceil(duration / interval))).

    If the duration exceeds a multiple of the interval by at most `TIME_TOLERANCE_S`, the excess is ignored: a video of
    10.000000001 s has 10 frames at an interval of 1 s.

    Args:
        duration_s: Length of the video in seconds; None (unknown) counts as 0, which gives one frame.
        interval_s: Seconds between captured frames, at least 1.
        max_frames: Upper limit; 0 means no limit.

    Raises:
        ValueError: `interval_s` is below 1, `max_frames` is negative, or `duration_s` is not finite.
    """
    length_s = 0.0 if duration_s is None else duration_s
    if interval_s < 1 or max_frames < 0 or not isfinite(length_s):
        raise ValueError(f"no sampling for {duration_s} s every {interval_s} s up to {max_frames} frames")
    captures = max(1, ceil((length_s - TIME_TOLERANCE_S) / interval_s))
    return min(max_frames, captures) if max_frames else captures


def frame_times(duration_s: float | None, interval_s: int, max_frames: int) -> list[float]:
    """Return the times of the captured frames, in seconds from the start: 0 and every `interval_s` seconds after it.

    All times but 0 are before the end of the video: a video of 10 s has the times 0 and 5 at an interval of 5 s. There
    are as many times as `frame_count` returns.

    Args:
        duration_s: Length of the video in seconds; if it is unknown (None), the only time is 0.
        interval_s: Seconds between captured frames, at least 1.
        max_frames: Most captured frames; 0 means no limit.

    Raises:
        ValueError: `interval_s` is below 1, `max_frames` is negative, or `duration_s` is not finite.
    """
    return [float(n * interval_s) for n in range(frame_count(duration_s, interval_s, max_frames))]


def evenly_spaced(times: Sequence[float], most: int) -> list[float]:
    """Return `most` (2 or more) of `times`, evenly spaced from first to last; all if there are no more than `most`."""
    if len(times) <= most:
        return list(times)
    return [times[round(n * (len(times) - 1) / (most - 1))] for n in range(most)]


def frame_indices(times: Sequence[float], fps: float, frame_count: int) -> list[int]:
    """Return the indices of the frames that a video of constant frame rate shows at `times`.

    Args:
        times: Seconds from the start of the video; a time after its end gives its final frame.
        fps: Frames a second.
        frame_count: Number of frames of the video.

    Raises:
        ValueError: `frame_count` is below 1, or `fps` is not above 0.
    """
    if fps <= 0 or frame_count < 1:
        raise ValueError(f"no frames to pick from: {frame_count} at {fps} a second")
    return [max(0, min(floor((time + TIME_TOLERANCE_S) * fps), frame_count - 1)) for time in times]


def indices_at(times: Sequence[float], starts: Sequence[float]) -> list[int]:
    """Return the indices of the frames that a video of varying frame rate shows at `times`.

    `times` are in seconds after `starts[0]`. `starts` are the start times of all frames, ascending.

    Raises:
        ValueError: `starts` is empty.
    """
    if not starts:
        raise ValueError("no frames to pick from")
    return [max(0, bisect_right(starts, time + starts[0] + TIME_TOLERANCE_S) - 1) for time in times]
