"""Chooses which captured frames of a video are worth sending: those that differ from one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightmeter.errors import MediaTooLarge
from lightmeter.media.video.frame_differences import FrameFeatures, frame_features, is_near_identical, scene_difference
from lightmeter.media.video.sample_video import iter_video

MAX_COMPARED_FRAMES: Final = 3600
"""Most captured frames of a video that can be compared: an hour at one a second. More raise MediaTooLarge."""

_SIDE: Final = 256
_SLICE_FRAMES: Final = 128


@dataclass(frozen=True, slots=True)
class DistinctFrame:
    """A captured frame of a video that differs from the other chosen ones; frames are captured at regular intervals.

    Attributes:
        frame: Number among the captured frames, from 0, as the service numbers the frames of a whole video.
        index: Index among all frames of the video, from 0.
        time_s: Time at which the frame is captured, in seconds from the start of the video.
    """

    frame: int
    index: int
    time_s: float


async def find_distinct_frames(
    path: Path, *, interval_s: int, max_frames: int, max_distinct: int
) -> tuple[list[DistinctFrame], int]:
    """Capture frames of a video at intervals; return those that are not near-identical, and how many were captured.

    The returned frames are in order of time. A frame that is near-identical to an earlier kept one is left
    out. If more than `max_distinct` frames are kept, those that differ most are returned (`most_different`).

    Args:
        path: The video file.
        interval_s: Seconds between captured frames, at least 1.
        max_frames: Most captured frames; 0 means no limit.
        max_distinct: Most frames to return; 0 means no limit.

    Raises:
        MediaError: the video does not decode within the limits, or has more than `MAX_COMPARED_FRAMES` captured frames.
        UsageError: no video decoder is installed.
    """
    found: list[DistinctFrame] = []
    features: list[FrameFeatures] = []
    captured = 0
    slices = iter_video(path, interval_s=interval_s, max_frames=max_frames, max_side=_SIDE, slice_frames=_SLICE_FRAMES)
    async for _, frames in slices:
        for frame in frames:
            if captured == MAX_COMPARED_FRAMES:
                raise MediaTooLarge(f"The video has more than {MAX_COMPARED_FRAMES} captured frames.")
            current = frame_features(frame.rgb)
            if not any(is_near_identical(current, kept) for kept in reversed(features)):
                found.append(DistinctFrame(captured, frame.index, frame.time_s))
                features.append(current)
            captured += 1
    return [found[position] for position in most_different(features, max_distinct)], captured


def most_different(frames: Sequence[FrameFeatures], limit: int) -> list[int]:
    """Return the indices, ascending, of up to `limit` frames that differ most; a `limit` of 0 means all frames.

    The first frame is always chosen. Each further choice is the frame that differs most (`scene_difference`) from the
    chosen frame to which it is most similar. This is farthest-first traversal (Gonzalez 1985). So every scene is
    represented before any scene gets a second frame.
    """
    if not limit or len(frames) <= limit:
        return list(range(len(frames)))
    taken, nearest = [0], [float("inf")] * len(frames)
    while len(taken) < limit:
        last = frames[taken[-1]]
        nearest = [min(old, scene_difference(last, frame)) for old, frame in zip(nearest, frames, strict=True)]
        taken.append(max(set(range(len(frames))) - {*taken}, key=lambda index: (nearest[index], -index)))
    return sorted(taken)
