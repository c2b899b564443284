"""Transforms that crop and resize a picture (a decoded image or video frame) to the input of a model.

A model's input has a few hundred pixels a side. The code that runs a model declares the transform of its input as a
value, and the decoder applies it at once. So only the small result becomes an array; the whole picture is never copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_REDUCING_GAP: Final = 2.0
"""Pillow's `reducing_gap`: a large picture is first averaged down to twice the target size or more, for speed."""


@dataclass(frozen=True, slots=True)
class FitWithin:
    """Transform: shrink the whole picture to a longer side of `most_side` pixels; a smaller picture is not changed."""

    most_side: int


@dataclass(frozen=True, slots=True)
class CenterCrop:
    """Transform: crop the central square and resize it (bicubic) to `side` x `side` pixels, also if that enlarges it.

    Attributes:
        side: Width and height of the result, in pixels.
        share: Side of the crop as a fraction of the picture's shorter side, above 0, at most 1.
    """

    side: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class StretchToSquare:
    """Transform: resize the whole picture to `side` x `side` pixels (bilinear), whatever its proportions."""

    side: int


InputTransform: TypeAlias = FitWithin | CenterCrop | StretchToSquare


def apply_transform(
    picture: Image.Image, transform: InputTransform, rotation: Image.Transpose | None = None
) -> NDArray[np.uint8]:
    """Transform a decoded RGB picture; return a read-only array, height x width x 3.

    `rotation` (None: no rotation) is applied after the transform, when the picture has fewer pixels.
    """
    result = _transform(picture, transform)
    return np.asarray(result if rotation is None else result.transpose(rotation))


def _transform(picture: Image.Image, transform: InputTransform) -> Image.Image:
    match transform:
        case FitWithin(most_side):
            longer = max(picture.size)
            if longer <= most_side:
                return picture
            width, height = (max(1, round(side * most_side / longer)) for side in picture.size)
            # Hamming: as sharp as bicubic when a picture is shrunk, at half the work.
            return picture.resize((width, height), Image.Resampling.HAMMING, reducing_gap=_REDUCING_GAP)
        case CenterCrop(side, share):
            width, height = picture.size
            edge = min(width, height) * share
            left, top = (width - edge) / 2, (height - edge) / 2
            box = (left, top, left + edge, top + edge)
            return picture.resize((side, side), Image.Resampling.BICUBIC, box=box, reducing_gap=_REDUCING_GAP)
        case StretchToSquare(side):
            return picture.resize((side, side), Image.Resampling.BILINEAR, reducing_gap=_REDUCING_GAP)


def transform_array(rgb: NDArray[np.uint8], transform: InputTransform) -> NDArray[np.uint8]:
    """Transform a picture given as an array, height x width x 3, RGB.

    A picture that already has the size of the result counts as transformed: `rgb` itself is returned.
    """
    height, width = rgb.shape[:2]
    if isinstance(transform, FitWithin):
        has_result_size = max(height, width) <= transform.most_side
    else:
        has_result_size = height == width == transform.side
    return rgb if has_result_size else apply_transform(Image.fromarray(np.ascontiguousarray(rgb)), transform)


@dataclass(frozen=True, slots=True)
class LetterboxedImage:
    """Picture at the center of a `canvas` whose border has one color, for models whose input has a fixed size.

    Attributes:
        canvas: The pixels of border and picture, height x width x 3, 0 to 255.
        left, top: Upper left corner of the picture, in pixels of the canvas.
        width, height: Size of the picture on the canvas, in pixels.
    """

    canvas: NDArray[np.uint8]
    left: int
    top: int
    width: int
    height: int


def letterbox(rgb: NDArray[np.uint8], width: int, height: int, fill: int) -> LetterboxedImage:
    """Resize a picture to fit into a canvas, keep its proportions, and place it at the center of the canvas.

    Args:
        rgb: The picture, height x width x 3.
        width: Width of the canvas, in pixels.
        height: Height of the canvas, in pixels.
        fill: Grey level of the canvas around the picture, 0 to 255.
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
    """Resize a picture (bilinear) to `width` x `height` pixels; return `rgb` itself if it already has that size."""
    if rgb.shape[:2] == (height, width):
        return rgb
    picture = Image.fromarray(np.ascontiguousarray(rgb))
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=_REDUCING_GAP))


def crop_center(rgb: NDArray[np.uint8], width: int, height: int, share: float) -> NDArray[np.uint8]:
    """Crop the center of a picture to the proportions `width` : `height`, and resize the crop (bicubic) to that size.

    Args:
        rgb: The picture, height x width x 3.
        width: Width of the result, in pixels.
        height: Height of the result, in pixels.
        share: Width of the crop divided by the width of the largest possible crop, above 0, at most 1.
    """
    most_width, most_height = rgb.shape[1], rgb.shape[0]
    factor = min(most_width / width, most_height / height) * share
    # Rounding errors must not put the crop outside the picture.
    left, top = max(0, (most_width - width * factor) / 2), max(0, (most_height - height * factor) / 2)
    box = (left, top, min(most_width, left + width * factor), min(most_height, top + height * factor))
    picture = Image.fromarray(np.ascontiguousarray(rgb))
    return np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC, box=box, reducing_gap=_REDUCING_GAP))


@dataclass(frozen=True, slots=True)
class PixelMapping:
    """Where a transformed picture lies in its original.

    Pixel (x, y) of the transformed picture is at (left + x * across, top + y * down) in the original.

    Attributes:
        left, top: Upper left corner of the transformed picture, in pixels of the original.
        across, down: Width and height in the original of one pixel of the transformed picture, above 0.
    """

    left: float
    top: float
    across: float
    down: float


def pixel_mapping(transform: InputTransform, width: int, height: int, result: NDArray[np.uint8]) -> PixelMapping:
    """Return where the pixels of a transformed picture are in its original.

    Args:
        transform: The transform that was applied.
        width: Width of the original after EXIF orientation, in pixels.
        height: Height of the original after EXIF orientation, in pixels.
        result: The transformed picture, height x width x 3.
    """
    rows, columns = result.shape[:2]
    if isinstance(transform, CenterCrop):
        edge = min(width, height) * transform.share
        return PixelMapping((width - edge) / 2, (height - edge) / 2, edge / columns, edge / rows)
    return PixelMapping(0, 0, width / columns, height / rows)
