"""Count the images and video frames of a plan's rows, from the lengths of their videos."""

from __future__ import annotations

from collections.abc import Sequence

from lightmeter import sqlite
from lightmeter.journal.queries.frame_counts import sendable_lengths, skipped_lengths
from lightmeter.options import Options
from lightmeter.pricing.estimate import FrameRange, frame_range


def frames_to_skip(db: sqlite.Connection, options: Options) -> FrameRange:
    """Return how many images and video frames a run does not send because the pre-checks skipped their rows.

    `db` is the journal with the rows of the plan.
    """
    total = FrameRange(0, 0)
    for kind, seconds, rows, _ in skipped_lengths(db):
        one = frame_range(kind, seconds, options.capture_interval, options.max_frames)
        total += FrameRange(one.low * rows, None if one.high is None else one.high * rows)
    return total


def frames_by_length(
    db: sqlite.Connection, options: Options
) -> Sequence[tuple[str | None, int | None, int, int | None]]:
    """Return how many frames the service would capture from one video, for each length of video in a plan.

    `db` is the journal with the rows of the plan. An image counts as one frame. Each tuple has four values:

    - the media type: `image`, `video`, or None if it is unknown
    - the length in seconds, rounded up; None for an image or if the length is unknown
    - the fewest frames
    - the most frames; None if there is no limit
    """
    lengths = [(kind, seconds) for kind, seconds, _, _ in sendable_lengths(db)]
    frames = [frame_range(*length, options.capture_interval, options.max_frames) for length in lengths]
    return [(*length, count.low, count.high) for length, count in zip(lengths, frames, strict=True)]
