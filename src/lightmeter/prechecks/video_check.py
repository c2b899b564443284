"""Checks of the content of videos: do they decode, are frames blank, and does the picture change?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from lightmeter.errors import BrokenMedia, MediaError
from lightmeter.media.image import is_blank, thumbnail
from lightmeter.media.media_info import VideoInfo
from lightmeter.media.video.decoder_client import DecoderLimits, DecoderPool, VideoFrame, decoder_session
from lightmeter.media.video.frame_differences import (
    FrameFeatures,
    frame_features,
    is_near_identical,
    scene_start_indices,
)
from lightmeter.media.video.sampling import evenly_spaced, frame_count, frame_times
from lightmeter.media.video.video_header import read_codec, stated_bytes
from lightmeter.prechecks.finding import Finding

MAX_CHECKED_FRAMES: Final = 60
"""If the service would capture at most this many frames of a video, all of these frames are checked."""

MAX_SPREAD_FRAMES: Final = 24
"""Number of evenly spaced frames that are checked if the service would capture more than `MAX_CHECKED_FRAMES`.

Fewer are checked, because each of them may need a seek and a second of decoding.
"""

_SIDE: Final = 256
"""Longest side, in pixels, of the decoded frames that are checked."""

_MAY_READ: Final = "The service may still read it."
_DEFAULT_LIMITS: Final = DecoderLimits()


@dataclass(frozen=True, slots=True)
class DecodedVideo:
    """What the pre-checks of a manifest row learned from its video. A value that the video does not show is None.

    Attributes:
        findings: Problems and facts that the checks found.
        width: In pixels, of the upright picture.
        height: In pixels, of the upright picture.
        duration_s: Length of the video, in seconds.
        perceptual_hash: Hash of the first frame that is not blank; see `media.perceptual_hash`.
        thumbnail: The first frame that is not blank, as a small JPEG; the first frame if all are blank.
    """

    findings: tuple[Finding, ...]
    width: int | None = None
    height: int | None = None
    duration_s: float | None = None
    perceptual_hash: int | None = None
    thumbnail: bytes | None = None


async def check_video(
    path: Path,
    *,
    capture_interval_s: int,
    max_frames: int,
    limits: DecoderLimits = _DEFAULT_LIMITS,
    pool: DecoderPool | None = None,
) -> DecodedVideo:
    """Decode the frames of a video that the service would capture, and check them; of many frames, check only some.

    A broken video gives one finding of severity `error`. A video that takes too much time or memory on this machine
    gives one `warning`.

    Args:
        path: The video file.
        capture_interval_s: Seconds between captured frames.
        max_frames: Most captured frames; 0 means no limit.
        limits: Time and memory of the decoder.
        pool: Keeps decoder processes for several videos; None means that a process is started for this video alone.

    Raises:
        UsageError: no video decoder is installed.
    """
    info: VideoInfo | None = None
    frames: list[VideoFrame] = []
    try:
        async with decoder_session(path, limits, pool) as decoder:
            info = decoder.info
            times = frame_times(info.duration_s, capture_interval_s, max_frames)
            most = len(times) if len(times) <= MAX_CHECKED_FRAMES else MAX_SPREAD_FRAMES
            frames = await decoder.frames(evenly_spaced(times, most), _SIDE)
        codec = await asyncio.to_thread(read_codec, path)
        needed_bytes = await asyncio.to_thread(stated_bytes, path)
    except BrokenMedia as error:
        return _not_decoded(Finding("decode", "error", str(error)), info)
    except (MediaError, OSError) as error:
        # Too much work, or a format unknown here: the service's decoder may do better.
        return _not_decoded(Finding("decode", "warning", f"{error} {_MAY_READ}"), info)
    captured = None if info.duration_s is None else frame_count(info.duration_s, capture_interval_s, max_frames)
    facts = {"codec": codec, "captured_frames": captured}
    checked = await asyncio.to_thread(_check_frames, info, frames, facts)
    if needed_bytes is None or needed_bytes <= info.size_bytes:
        return checked
    message = f"The video is truncated: it needs {needed_bytes:,} bytes, but has {info.size_bytes:,}."
    truncated = Finding("size", "warning", message, info.size_bytes, {"needed_bytes": needed_bytes})
    return replace(checked, findings=(*checked.findings, truncated))


def _not_decoded(finding: Finding, info: VideoInfo | None) -> DecodedVideo:
    if info is None:
        return DecodedVideo((finding,))
    return DecodedVideo((finding,), info.width, info.height, info.duration_s)


def _check_frames(info: VideoInfo, frames: Sequence[VideoFrame], facts: dict[str, Any]) -> DecodedVideo:
    """Check decoded frames of a video for blank and unchanging pictures.

    `facts` becomes part of the finding `decode`. It holds `codec` and `captured_frames`: the number of frames that the
    service would capture, None if the length of the video is unknown.
    """
    features = [frame_features(frame.rgb) for frame in frames]
    blank = [is_blank(frame.rgb) for frame in frames]
    repeats = [is_near_identical(first, second) for first, second in pairwise(features)]
    message = "Decodes; its time stamps and rate are absurd: its length, and so its price, is not known."
    captured = facts["captured_frames"]
    if captured is not None:
        message = f"Decodes; {captured} frames would be captured."
    facts = {
        **asdict(info),
        **facts,
        "sampled_frames": len(frames),
        "near_identical_share": round(sum(repeats) / len(repeats), 4) if repeats else None,
        "scene_cuts_s": [frames[index].time_s for index in scene_start_indices(features)],
    }
    found = [Finding("decode", "info" if captured else "warning", message, captured, facts)]
    if any(blank):
        found.append(_blank_finding(frames, blank))
    elif len(frames) > 1 and _is_frozen(features):
        times = [frame.time_s for frame in frames]
        text = f"All {len(frames)} sampled frames are near-identical: one frame would show as much."
        found.append(Finding("frozen", "warning", text, 1.0, {"near_identical_at_s": times}))
    shown = next((index for index, is_empty in enumerate(blank) if not is_empty), None)
    return DecodedVideo(
        tuple(found),
        info.width,
        info.height,
        info.duration_s,
        None if shown is None else features[shown].perceptual_hash,
        thumbnail(frames[shown or 0].rgb),
    )


def _is_frozen(features: Sequence[FrameFeatures]) -> bool:
    """Whether all frames are near-identical to the first frame; false for a slow fade."""
    return all(is_near_identical(features[0], other) for other in features[1:])


def _blank_finding(frames: Sequence[VideoFrame], blank: Sequence[bool]) -> Finding:
    facts = {"blank_at_s": [frame.time_s for frame, is_empty in zip(frames, blank, strict=True) if is_empty]}
    share = sum(blank) / len(blank)
    if all(blank):
        return Finding("blank", "error", "Every sampled frame is blank.", share, facts)
    return Finding("frames", "warning", f"{sum(blank)} of {len(blank)} sampled frames are blank.", share, facts)
