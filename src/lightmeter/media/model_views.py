"""What a model looks at of a picture, said so that it can be cut out while the picture is being decoded.

A model sees some hundred pixels a side. Handing it the whole picture means that megabytes are copied three times (out
of the decoder, into an array, back into a picture that can be resampled) for what could have been cut from the decoded
picture at once. So whoever looks says in a value what it wants to see, and only that becomes an array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = [
    "CenterCrop",
    "FitWithin",
    "InputTransform",
    "LetterboxedImage",
    "PixelMapping",
    "StretchToSquare",
    "centre_crop",
    "cut",
    "letterbox",
    "placement_of",
    "stretch",
    "transform_array",
]

_GAP: Final = 2.0
"""What is more than four times the size wanted is first averaged down to twice that: much quicker, and not seen."""


@dataclass(frozen=True, slots=True)
class FitWithin:
    """All of the picture, shrunk so that neither side is longer.

    Attributes:
        most_side: Pixels, 1 or more.
    """

    most_side: int


@dataclass(frozen=True, slots=True)
class CenterCrop:
    """The middle of the picture, resampled bicubically; a smaller picture is enlarged.

    Attributes:
        side: Pixels of each side of what is seen.
        share: Of the picture's shorter side, above 0, at most 1.
    """

    side: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class StretchToSquare:
    """All of the picture, pulled into a square, resampled bilinearly.

    Attributes:
        side: Pixels of each side of what is seen.
    """

    side: int


InputTransform: TypeAlias = FitWithin | CenterCrop | StretchToSquare


def cut(picture: Image.Image, view: InputTransform, turn: Image.Transpose | None = None) -> NDArray[np.uint8]:
    """What is seen of a decoded RGB picture: height x width x 3, not to be written to.

    Args:
        picture: It stays as it is.
        view: What is wanted of it.
        turn: Applied to what was cut out, which is less than the picture; the middle stays the middle.
    """
    seen = _seen(picture, view)
    return np.asarray(seen if turn is None else seen.transpose(turn))


def _seen(picture: Image.Image, view: InputTransform) -> Image.Image:
    match view:
        case FitWithin(most_side):
            return _within(picture, most_side)
        case CenterCrop(side, share):
            width, height = picture.size
            edge = min(width, height) * share
            left, top = (width - edge) / 2, (height - edge) / 2
            box = (left, top, left + edge, top + edge)
            return picture.resize((side, side), Image.Resampling.BICUBIC, box=box, reducing_gap=_GAP)
        case StretchToSquare(side):
            return picture.resize((side, side), Image.Resampling.BILINEAR, reducing_gap=_GAP)


def _within(picture: Image.Image, most_side: int) -> Image.Image:
    longer = max(picture.size)
    if longer <= most_side:
        return picture
    width, height = (max(1, round(side * most_side / longer)) for side in picture.size)
    # Hamming: as sharp as bicubic when a picture is shrunk, at half the work.
    return picture.resize((width, height), Image.Resampling.HAMMING, reducing_gap=_GAP)


def transform_array(rgb: NDArray[np.uint8], view: InputTransform) -> NDArray[np.uint8]:
    """What is seen of a picture that is an array already; one that is as small as the view is taken for one.

    Args:
        rgb: Height x width x 3.
        view: What is wanted of it.

    Returns:
        A new array, or the picture itself.
    """
    height, width = rgb.shape[:2]
    if max(height, width) <= view.most_side if isinstance(view, FitWithin) else height == width == view.side:
        return rgb
    return cut(Image.fromarray(np.ascontiguousarray(rgb)), view)


@dataclass(frozen=True, slots=True)
class LetterboxedImage:
    """A picture inside of a larger canvas.

    Attributes:
        canvas: The canvas, height x width x 3.
        left, top: Where the picture begins on it, in pixels.
        width, height: What the picture takes of it, in pixels.
    """

    canvas: NDArray[np.uint8]
    left: int
    top: int
    width: int
    height: int


def letterbox(rgb: NDArray[np.uint8], width: int, height: int, fill: int) -> LetterboxedImage:
    """Show a whole picture on a canvas, as large as its proportions allow, in the middle.

    Args:
        rgb: Height x width x 3.
        width: Of the canvas, in pixels.
        height: Of the canvas, in pixels.
        fill: Grey of the canvas beside the picture, 0 to 255.
    """
    factor = min(width / rgb.shape[1], height / rgb.shape[0])
    inner_width, inner_height = (
        min(most, max(1, round(side * factor))) for side, most in ((rgb.shape[1], width), (rgb.shape[0], height))
    )
    left, top = (width - inner_width) // 2, (height - inner_height) // 2
    canvas = np.full((height, width, 3), fill, np.uint8)
    canvas[top : top + inner_height, left : left + inner_width] = stretch(rgb, inner_width, inner_height)
    return LetterboxedImage(canvas, left, top, inner_width, inner_height)


def stretch(rgb: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """Resample a picture bilinearly to a size in pixels, whatever its proportions; a new array, or the picture."""
    if rgb.shape[:2] == (height, width):
        return rgb
    picture = Image.fromarray(np.ascontiguousarray(rgb))
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=_GAP))


def centre_crop(rgb: NDArray[np.uint8], width: int, height: int, share: float) -> NDArray[np.uint8]:
    """Cut out the middle of a picture in the proportions width : height, and resample it to that size.

    Args:
        rgb: Height x width x 3.
        width: Of the result, in pixels.
        height: Of the result, in pixels.
        share: Of the largest such cutting that the picture holds, above 0, at most 1.
    """
    most_width, most_height = rgb.shape[1], rgb.shape[0]
    factor = min(most_width / width, most_height / height) * share
    # Without max and min, rounding errors would lie outside of the picture.
    left, top = max(0, (most_width - width * factor) / 2), max(0, (most_height - height * factor) / 2)
    box = (left, top, min(most_width, left + width * factor), min(most_height, top + height * factor))
    picture = Image.fromarray(np.ascontiguousarray(rgb))
    return np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC, box=box, reducing_gap=_GAP))


@dataclass(frozen=True, slots=True)
class PixelMapping:
    """Where a view lies in its picture: a point x, y of the view is left + x * across, top + y * down of the picture.

    Attributes:
        left, top: Of the view's corner in the picture, in pixels of the picture.
        across, down: Pixels of the picture for each pixel of the view, above 0.
    """

    left: float
    top: float
    across: float
    down: float


def placement_of(view: InputTransform, width: int, height: int, seen: NDArray[np.uint8]) -> PixelMapping:
    """Where in a picture a view of it lies.

    Args:
        view: What was wanted of the picture.
        width: Of the picture, upright, in pixels.
        height: Likewise.
        seen: The view that was cut out of it: height x width x 3.
    """
    rows, columns = seen.shape[:2]
    if isinstance(view, CenterCrop):
        edge = min(width, height) * view.share
        return PixelMapping((width - edge) / 2, (height - edge) / 2, edge / columns, edge / rows)
    return PixelMapping(0, 0, width / columns, height / rows)
