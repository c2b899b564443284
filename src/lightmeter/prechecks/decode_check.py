"""Checks of the content of images and videos: does it decode, and is it blank?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.fingerprint import fingerprint
from lightmeter.media.image import (
    MAX_PIXELS,
    is_blank,
    is_header_broken,
    load_rgb,
    read_image_info,
    read_size,
    thumbnail,
)
from lightmeter.media.least_bytes import least_bytes
from lightmeter.media.media_info import ImageInfo, VideoInfo
from lightmeter.media.perceptual_hash import perceptual_hash
from lightmeter.media.sampling import frame_count
from lightmeter.media.video import sample_video
from lightmeter.prechecks.finding import Finding

MAX_CHECKED_FRAMES: Final = 60
"""Maximum number of frames of a video that are checked."""

_SIDE: Final = 256
"""Longest side, in pixels, of decoded images and video frames."""

_MAY_READ: Final = "The service may still read it."

_TINY_SIDE: Final = 16
"""Shorter side, in pixels, below which an image gets a warning."""


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """What the checks learned from the content of an image.

    Attributes:
        findings: What they found.
        width: In pixels, upright; None if the header cannot be read.
        height: Likewise.
        perceptual_hash: See `media.perceptual_hash`; None if the image was not decoded.
        thumbnail: The image as a small JPEG; None if it was not decoded.
        fingerprint: See `media.fingerprint`; None if the image was not decoded or shows too little.
    """

    findings: tuple[Finding, ...]
    width: int | None = None
    height: int | None = None
    perceptual_hash: int | None = None
    thumbnail: bytes | None = None
    fingerprint: bytes | None = None


def check_image(content: bytes, *, remote: bool = False) -> DecodedImage:
    """Decode an image and check it.

    A broken image gives an error. So does a local file with too many pixels, because it could not be uploaded. At a URL
    (`remote`), that is a warning: the service may decode it. A format that lightmeter does not decode is a warning.
    """
    try:
        info = read_image_info(content)
        if info.width * info.height > MAX_PIXELS:
            message = f"{info.width} x {info.height} pixels are more than the limit of {MAX_PIXELS:,}."
            return DecodedImage(
                (_too_large(message, info.width * info.height, remote=remote),), info.width, info.height
            )
        picture = load_rgb(content, max_side=_SIDE)
    except MediaTooLarge as error:
        return DecodedImage((_too_large(str(error), None, remote=remote),))
    except UnsupportedMedia as error:  # TIFF, HEIC: not read here, but another service may
        return DecodedImage((Finding("decode", "warning", f"{error} {_MAY_READ}"),))
    except MediaError as error:
        return DecodedImage((Finding("decode", "error", str(error)),))
    decodes = Finding("decode", "info", "Decodes.", facts=asdict(info))
    findings = (decodes, *_picture_findings(picture, info))
    return DecodedImage(
        findings, info.width, info.height, perceptual_hash(picture), thumbnail(picture), fingerprint(picture)
    )


def _too_large(message: str, pixels: int | None, *, remote: bool) -> Finding:
    if remote:
        return Finding("pixels", "warning", f"{message} {_MAY_READ}", pixels)
    return Finding("pixels", "error", message, pixels)


def _picture_findings(picture: NDArray[np.uint8], info: ImageInfo) -> Iterator[Finding]:
    """Yield what is wrong with a decoded picture, or unusual."""
    if is_blank(picture):
        yield Finding("frames", "warning", "The picture is blank.", 1.0)
    if min(info.width, info.height) < _TINY_SIDE:
        yield Finding("pixels", "warning", f"Only {info.width} x {info.height} pixels.", info.width * info.height)
    if info.frames > 1:
        message = f"An animation of {info.frames} frames; only its first frame is analysed."
        yield Finding("frames", "info", message, info.frames)


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
        return size, [Finding("pixels", "warning", f"{message} {_MAY_READ}", size[0] * size[1])]
    return size, []


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
            max_side=_SIDE,
        )
    except BrokenMedia as error:
        return None, [Finding("decode", "error", str(error))]
    except MediaError as error:
        # Too much work, or a format unknown here: the service's decoder may do better.
        return None, [Finding("decode", "warning", f"{error} {_MAY_READ}")]
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
