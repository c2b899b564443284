"""Checks of an image's quality: compares measures of the picture with the thresholds in the settings.

The findings dark, light, low_information, blurry, odd_aspect_ratio and grayscale have the definitions and default
thresholds of CleanVision 0.3.7. The findings blank, tiny, animated and rotated are lightmeter's own. A finding with a
threshold is reported if the measure is below the threshold, so a threshold of 0 turns it off. No finding has the
severity `error`, because services can analyze such images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lightmeter.media.image_quality import ImageQuality
from lightmeter.media.media_info import ImageInfo
from lightmeter.prechecks.finding import Finding
from lightmeter.settings import QualityThresholds

_ORIENTATIONS: Final = {
    2: "mirrored",
    3: "turned by 180°",
    4: "mirrored and turned by 180°",
    5: "mirrored and turned by 270°",
    6: "turned by 90°",
    7: "mirrored and turned by 90°",
    8: "turned by 270°",
}
"""Orientation (TIFF 6.0 tag 274) → how viewers turn or mirror the stored picture before they show it."""


def image_findings(found: ImageQuality, info: ImageInfo, limits: QualityThresholds) -> Iterator[Finding]:
    """Yield the quality findings of an image.

    Args:
        found: Measures of the decoded picture.
        info: Metadata of the stored image.
        limits: The thresholds of the findings.
    """
    if found.differing_share < limits.blank:
        message = f"The picture is blank: {1 - found.differing_share:.1%} of its points have one color."
        yield Finding("blank", "warning", message, found.differing_share)
    if found.bright_level < limits.dark:
        message = f"The picture is dark: 99 % of its points have at most {found.bright_level:.0%} brightness."
        yield Finding("dark", "warning", message, found.bright_level)
    if 1 - found.dark_level < limits.light:
        message = f"The picture is too light: 95 % of its points have at least {found.dark_level:.0%} brightness."
        yield Finding("light", "warning", message, 1 - found.dark_level)
    if found.information < limits.low_information:
        message = f"The picture has little detail: the entropy of its colors is {10 * found.information:.1f} bits."
        yield Finding("low_information", "warning", message, found.information)
    if found.sharpness < limits.blurry:
        message = f"The picture is blurry: the strength of its edges is {found.sharpness:.2f} of 1."
        yield Finding("blurry", "warning", message, found.sharpness)
    yield from size_findings(info.width, info.height, limits)
    if info.frames > 1:
        message = f"{info.frames} frames or pages; only the first is analysed."
        yield Finding("animated", "info", message, info.frames)
    if found.color_difference < limits.grayscale:
        yield Finding("grayscale", "info", "The picture has no color, only shades of gray.", found.color_difference)
    if info.orientation in _ORIENTATIONS:
        message = f"Orientation {info.orientation}: the picture is shown {_ORIENTATIONS[info.orientation]}."
        yield Finding("rotated", "info", message, info.orientation)


def size_findings(width: int, height: int, limits: QualityThresholds) -> Iterator[Finding]:
    """Yield the quality findings that depend only on width and height in pixels: tiny and odd_aspect_ratio."""
    short, long = sorted((width, height))
    if short < limits.tiny:
        yield Finding("tiny", "warning", f"Only {width} x {height} pixels.", short)
    if short / long < limits.odd_aspect_ratio:
        message = f"An unusual shape of {width} x {height} pixels: one side is {long / short:.1f} times the other."
        yield Finding("odd_aspect_ratio", "warning", message, short / long)
