"""Checks of the content of images and videos: does it decode, and is it blank?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.image import MAX_PIXELS, is_blank, is_header_broken, load_rgb, read_image_info, read_size
from lightmeter.media.least_bytes import least_bytes
from lightmeter.media.media_info import ImageInfo, VideoInfo
from lightmeter.media.sampling import frame_count
from lightmeter.media.video import sample_video
from lightmeter.prechecks.finding import Finding

MAX_CHECKED_FRAMES: Final = 60
"""Maximum number of frames of a video that are checked."""

_IMAGE_SIDE: Final = 512
_REMOTE_SIDE: Final = 64
_FRAME_SIDE: Final = 256
"""Longest side, in pixels, of decoded files, images at URLs and video frames."""

_TINY_SIDE: Final = 16
"""Shorter side, in pixels, below which an image gets a warning."""


def check_image(content: bytes) -> tuple[ImageInfo | None, list[Finding]]:
    """Decode an image; return its metadata (None if it cannot be read) and what the checks found."""
    try:
        info = read_image_info(content)
        if info.width * info.height > MAX_PIXELS:
            message = f"{info.width} x {info.height} pixels are more than the limit of {MAX_PIXELS:,}."
            return info, [Finding("pixels", "error", message, info.width * info.height)]
        picture = load_rgb(content, max_side=_IMAGE_SIDE)
    except MediaTooLarge as error:
        return None, [Finding("pixels", "error", str(error))]
    except UnsupportedMedia as error:  # TIFF, HEIC: not read here, but another service may
        return None, [Finding("decode", "warning", f"{error} The service may still read it.")]
    except MediaError as error:
        return None, [Finding("decode", "error", str(error))]
    findings = [Finding("decode", "info", "Decodes.", facts=asdict(info))]
    if is_blank(picture):
        findings.append(Finding("frames", "warning", "The picture is blank.", 1.0))
    if min(info.width, info.height) < _TINY_SIDE:
        message = f"Only {info.width} x {info.height} pixels."
        findings.append(Finding("pixels", "warning", message, info.width * info.height))
    if info.frames > 1:
        message = f"An animation of {info.frames} frames; only its first frame is analysed."
        findings.append(Finding("frames", "info", message, info.frames))
    return info, findings


def check_image_head(head: bytes, size_bytes: int | None) -> tuple[tuple[int, int] | None, list[Finding]]:
    """Examine the first bytes of an image; return its width and height (None if unknown) and what the checks found.

    An error is reported only if the image is broken, whatever bytes follow.

    Args:
        head: The first bytes.
        size_bytes: Length of the whole image; None if it is not known.
    """
    least = least_bytes(head)
    if size_bytes is not None and least is not None and least > size_bytes:
        message = f"The picture is truncated: it needs {least:,} bytes or more, but has {size_bytes:,}."
        return None, [Finding("decode", "error", message, size_bytes)]
    size = read_size(head)
    if size is None and is_header_broken(head):
        return None, [Finding("decode", "error", "The header of the picture does not parse.")]
    if size is not None and size[0] * size[1] > MAX_PIXELS:
        message = f"{size[0]} x {size[1]} pixels are more than the limit of {MAX_PIXELS:,}."
        return size, [Finding("pixels", "warning", f"{message} The service may still read it.", size[0] * size[1])]
    return size, []


def check_remote_image(content: bytes) -> list[Finding]:
    """Decode the whole content of an image at a URL, at a reduced size to save time; return what was found.

    Only a broken image gives an error. A format or size that lightmeter does not decode gives a warning, because the
    service may decode it.
    """
    try:
        load_rgb(content, max_side=_REMOTE_SIDE)
    except BrokenMedia as error:
        return [Finding("decode", "error", str(error))]
    except MediaError as error:
        return [Finding("decode", "warning", f"{error} The service may still read it.")]
    return [Finding("decode", "info", "Decodes.")]


async def check_video(
    path: Path, *, capture_interval_s: int, max_frames: int
) -> tuple[VideoInfo | None, list[Finding]]:
    """Decode the frames of a video that a run would capture; return its metadata and what the checks found.

    The metadata is None if the video cannot be read.

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
    metadata = {**asdict(info), "captured_frames": captured}
    decodes = Finding("decode", "info" if captured else "warning", message, captured, metadata)
    blank = [frame.time_s for frame in frames if is_blank(frame.rgb)]
    if not blank:
        return info, [decodes]
    facts, share = {"blank_at_s": blank}, len(blank) / len(frames)
    if len(blank) == len(frames):
        return info, [decodes, Finding("frames", "error", "Every sampled frame is blank.", share, facts)]
    message = f"{len(blank)} of {len(frames)} sampled frames are blank."
    return info, [decodes, Finding("frames", "warning", message, share, facts)]
