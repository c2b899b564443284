"""Checks of picture and video content: does it decode, and do its frames show anything?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.image import MAX_PIXELS, is_blank, load_rgb, read_image_info
from lightmeter.media.media_info import ImageInfo, VideoInfo
from lightmeter.media.sampling import frame_count
from lightmeter.media.video import VideoFrame, sample_video
from lightmeter.prechecks.finding import Finding

MAX_CHECKED_FRAMES: Final = 60
"""Maximum number of frames of a video that are checked: a long video has thousands."""

_IMAGE_SIDE: Final = 512
_FRAME_SIDE: Final = 256
"""Longest side, in pixels, that content is decoded to: enough to tell whether it is blank."""

_TINY_SIDE: Final = 16
"""Shorter side, in pixels, below which a picture gets a warning."""


def check_image(content: bytes) -> tuple[ImageInfo | None, list[Finding]]:
    """Decode a picture; return its metadata (None if it cannot be read) and the findings.

    This takes up to a second of CPU time: call it off the event loop.
    """
    try:
        info = read_image_info(content)
        if info.width * info.height > MAX_PIXELS:
            message = f"{info.width} x {info.height} pixels are more than the limit of {MAX_PIXELS:,}."
            return info, [Finding("pixels", "error", message, info.width * info.height)]
        picture = load_rgb(content, max_side=_IMAGE_SIDE)
    except MediaError as error:
        return None, [_decode_finding(error)]
    metadata = {
        "format": info.format,
        "width": info.width,
        "height": info.height,
        "frames": info.frames,
        "size_bytes": info.size_bytes,
    }
    findings = [Finding("decode", "info", "Decodes.", facts=metadata)]
    if is_blank(picture):
        findings.append(Finding("frames", "warning", "The picture is blank.", 1.0))
    if min(info.width, info.height) < _TINY_SIDE:
        message = f"Only {info.width} x {info.height} pixels."
        findings.append(Finding("pixels", "warning", message, info.width * info.height))
    if info.frames > 1:
        message = f"An animation of {info.frames} frames; only its first frame is analysed."
        findings.append(Finding("frames", "info", message, info.frames))
    return info, findings


def _decode_finding(error: MediaError) -> Finding:
    match error:
        case MediaTooLarge():
            return Finding("pixels", "error", str(error))
        case UnsupportedMedia():
            # TIFF, HEIC: not read here, but another service may.
            return Finding("decode", "warning", f"{error} The service may still read it.")
        case BrokenMedia() | _:
            return Finding("decode", "error", str(error))


async def check_video(
    path: Path, *, capture_interval_s: int, max_frames: int
) -> tuple[VideoInfo | None, list[Finding]]:
    """Decode the frames that a run would capture; return the metadata (None if the video cannot be read) and findings.

    Args:
        path: The video file.
        capture_interval_s: Seconds between captured frames.
        max_frames: Maximum number of captured frames; 0 means no limit.
    """
    try:
        info, frames = await sample_video(
            path,
            interval_s=capture_interval_s,
            max_frames=min(max_frames or MAX_CHECKED_FRAMES, MAX_CHECKED_FRAMES),
            max_side=_FRAME_SIDE,
        )
    except BrokenMedia as error:
        return None, [Finding("decode", "error", str(error))]
    except MediaError as error:
        # Too much work, or a format unknown here: the service's decoder may do better.
        return None, [Finding("decode", "warning", f"{error} The service may still read it.")]
    captured = None
    message = "Decodes; its time stamps and rate are absurd: its length, and so its price, is not known."
    if info.duration_s is not None:
        captured = frame_count(info.duration_s, capture_interval_s, max_frames)
        message = f"Decodes; {captured} frames would be captured."
    metadata = {
        "width": info.width,
        "height": info.height,
        "duration_s": info.duration_s,
        "fps": info.fps,
        "frame_count": info.frame_count,
        "captured_frames": captured,
        "size_bytes": (await asyncio.to_thread(path.stat)).st_size,
    }
    decodes = Finding("decode", "info" if captured else "warning", message, captured, metadata)
    return info, [decodes, *_blank_findings(frames)]


def _blank_findings(frames: list[VideoFrame]) -> list[Finding]:
    blank = [frame.time_s for frame in frames if is_blank(frame.rgb)]
    if not blank:
        return []
    share = len(blank) / len(frames)
    if len(blank) == len(frames):
        return [Finding("frames", "error", "Every sampled frame is blank.", share, {"blank_at_s": blank})]
    message = f"{len(blank)} of {len(frames)} sampled frames are blank."
    return [Finding("frames", "warning", message, share, {"blank_at_s": blank})]
