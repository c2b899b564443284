"""Checks of the content of images: does an image decode, and what is its quality?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from lightmeter.errors import MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.fingerprint import fingerprint
from lightmeter.media.image import (
    MAX_PIXELS,
    is_header_broken,
    load_rgb_and_levels,
    read_image_info,
    read_size,
    thumbnail,
)
from lightmeter.media.image_quality import measure_quality
from lightmeter.media.least_bytes import least_bytes
from lightmeter.media.perceptual_hash import perceptual_hash
from lightmeter.prechecks.finding import Finding
from lightmeter.prechecks.quality_check import image_findings
from lightmeter.settings import DEFAULT_THRESHOLDS, QualityThresholds

_SIDE: Final = 256
"""Longest side, in pixels, of the decoded pictures that are checked."""

_MAY_READ: Final = "The service may still read it."


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """What the pre-checks of a manifest row learned from the content of its image.

    Attributes:
        findings: Problems and facts that the checks found.
        width: In pixels, after the image is turned upright; None if the header cannot be read.
        height: In pixels, after the image is turned upright; None if the header cannot be read.
        perceptual_hash: 64 bits that are similar for images that look similar; None if the image was not decoded.
        thumbnail: The image as a small JPEG; None if the image was not decoded.
        fingerprint: Tiny copy that tells whether two images look the same (`media.fingerprint`); None if the image was
            not decoded or is nearly blank.
    """

    findings: tuple[Finding, ...]
    width: int | None = None
    height: int | None = None
    perceptual_hash: int | None = None
    thumbnail: bytes | None = None
    fingerprint: bytes | None = None


def check_image(
    content: bytes, thresholds: QualityThresholds = DEFAULT_THRESHOLDS, *, remote: bool = False
) -> DecodedImage:
    """Decode an image, check it, and return what was found. No image raises an exception.

    A broken image gives a finding of severity `error`. So does a local file with too many pixels, because the service
    does not take it as an upload. For an image at a URL, too many pixels give a `warning`, because the service may
    decode it. A format that lightmeter does not decode gives a `warning`.

    Args:
        content: The whole content of the image.
        thresholds: Thresholds of the findings about quality, such as `blurry`.
        remote: Whether the image is at a URL; false for a local file.
    """
    try:
        info = read_image_info(content)
        if info.width * info.height > MAX_PIXELS:
            message = f"{info.width} x {info.height} pixels are more than the limit of {MAX_PIXELS:,}."
            return DecodedImage(
                (_too_large(message, info.width * info.height, remote=remote),), info.width, info.height
            )
        picture, levels = load_rgb_and_levels(content, _SIDE)
    except MediaTooLarge as error:
        return DecodedImage((_too_large(str(error), None, remote=remote),))
    except UnsupportedMedia as error:  # not read here, but another service may
        return DecodedImage((Finding("decode", "warning", f"{error} {_MAY_READ}"),))
    except MediaError as error:
        return DecodedImage((Finding("decode", "error", str(error)),))
    decodes = Finding("decode", "info", "Decodes.", facts=asdict(info))
    findings = (decodes, *image_findings(measure_quality(picture, levels), info, thresholds))
    return DecodedImage(
        findings, info.width, info.height, perceptual_hash(picture), thumbnail(picture), fingerprint(picture)
    )


def _too_large(message: str, pixels: int | None, *, remote: bool) -> Finding:
    if remote:
        return Finding("pixels", "warning", f"{message} {_MAY_READ}", pixels)
    return Finding("pixels", "error", message, pixels)


def check_image_head(head: bytes, size_bytes: int | None) -> tuple[tuple[int, int] | None, list[Finding]]:
    """Examine the first bytes of an image; return its width and height (None if unknown) and what the checks found.

    A finding has the severity `error` only if the image is broken, whatever bytes follow `head`.

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
