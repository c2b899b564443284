"""Whether a picture in memory is worth sending."""

from __future__ import annotations

from typing import Final

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.image import MAX_PIXELS, is_blank, load_rgb, read_image_info, read_size
from lightmeter.media.media_info import ImageInfo
from lightmeter.prechecks.finding import Finding

__all__ = ["BEGINNING_BYTES", "check_image", "size_of"]

BEGINNING_BYTES: Final = 64 * 1024
"""Of a picture by URL, the bytes that are read to learn its size: enough for nearly all headers with their metadata."""

_LOOK_SIDE: Final = 512
_TINY_SIDE: Final = 16


def check_image(content: bytes) -> tuple[ImageInfo | None, list[Finding]]:
    """Measure and decode a picture; its facts, None if there are none, and what was found.

    Takes up to a second of processor time: call it off the event loop.
    """
    try:
        facts = read_image_info(content)
        if facts.width * facts.height > MAX_PIXELS:
            message = f"{facts.width} x {facts.height} pixels are more than the limit of {MAX_PIXELS:,}."
            return facts, [Finding("pixels", "error", message, facts.width * facts.height)]
        picture = load_rgb(content, max_side=_LOOK_SIDE)
    except MediaError as error:
        return None, [_refusal(error)]
    measures = {
        "format": facts.format,
        "width": facts.width,
        "height": facts.height,
        "frames": facts.frames,
        "size_bytes": facts.size_bytes,
    }
    findings = [Finding("decode", "info", "Decodes.", facts=measures)]
    if is_blank(picture):
        findings.append(Finding("frames", "warning", "The picture is blank.", 1.0))
    if min(facts.width, facts.height) < _TINY_SIDE:
        message = f"Only {facts.width} x {facts.height} pixels."
        findings.append(Finding("pixels", "warning", message, facts.width * facts.height))
    if facts.frames > 1:
        message = f"An animation of {facts.frames} frames; as a picture, its first frame counts."
        findings.append(Finding("frames", "info", message, facts.frames))
    return facts, findings


def size_of(beginning: bytes) -> tuple[int | None, int | None]:
    """Width and height of a picture as it is shown, from its first bytes; None twice where they do not tell."""
    return read_size(beginning) or (None, None)


def _refusal(error: MediaError) -> Finding:
    match error:
        case MediaTooLarge():
            return Finding("pixels", "error", str(error))
        case UnsupportedMedia():
            # TIFF, HEIC: not read here, but another service may.
            return Finding("decode", "warning", f"{error} The service may still read it.")
        case BrokenMedia() | _:
            return Finding("decode", "error", str(error))
