"""Converts the coordinates that back ends return to pixels of the image or video.

The input of a back end may be scaled or cropped, and its coordinates refer to this input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lightmeter.errors import BackendError
from lightmeter.media.image_transforms import InputTransform, PixelMapping, pixel_mapping
from lightmeter.service.analysis.inference_queue import InferenceOutcome
from lightmeter.service.ingest.decode import DecodedPictures
from lightmeter.wire.response import Entries

_FEATURES: Final = ("brands", "faces", "texts")
"""Features whose entries have coordinates."""

_HORIZONTAL: Final = frozenset({"x", "left", "right"})
_VERTICAL: Final = frozenset({"y", "top", "bottom"})
_IDENTITY: Final = PixelMapping(0, 0, 1, 1)


def in_asset_pixels(
    outcomes: Sequence[InferenceOutcome], transform: InputTransform, pictures: DecodedPictures
) -> list[InferenceOutcome]:
    """Return the entries of a back end (faces, texts and so on), with coordinates in pixels of the image or video.

    Args:
        outcomes: Entries of each image or frame, in order, with coordinates in the back end's input; or an error, which
            does not change.
        transform: Transform (scale, crop) that made the back end's input.
        pictures: The decoded image or frames, with the size of the asset.
    """
    mappings = (
        pixel_mapping(transform, pictures.metadata.width, pictures.metadata.height, pixels)
        for pixels in pictures.pixels_by_transform[transform]
    )
    return [
        each if isinstance(each, BackendError) else _convert_entries(each, mapping)
        for each, mapping in zip(outcomes, mappings, strict=True)
    ]


def _convert_entries(entries: Entries, mapping: PixelMapping) -> Entries:
    located = {feature: getattr(entries, feature) for feature in _FEATURES}
    if mapping == _IDENTITY or not any(located.values()):
        return entries
    converted = {
        feature: [type(each).model_validate(convert_coordinates(each.model_dump(), mapping)) for each in each_of]
        for feature, each_of in located.items()
        if each_of
    }
    return entries.model_copy(update=converted)


def convert_coordinates(value: Any, mapping: PixelMapping) -> Any:
    """Return a JSON value in which `mapping` has converted all coordinates, at any depth; other values do not change.

    The fields `x`, `left`, `right`, `y`, `top` and `bottom` are converted as positions. The fields `width` and `height`
    are converted as lengths. An integer is rounded to an integer, any other number to hundredths of a pixel.
    """
    if isinstance(value, list):
        return [convert_coordinates(inner, mapping) for inner in value]
    if not isinstance(value, dict):
        return value
    return {key: _convert_number(key, inner, mapping) for key, inner in value.items()}


def _convert_number(key: str, value: Any, mapping: PixelMapping) -> Any:
    if type(value) not in {int, float}:
        return convert_coordinates(value, mapping)
    if key in _HORIZONTAL:
        converted = mapping.left + value * mapping.across
    elif key in _VERTICAL:
        converted = mapping.top + value * mapping.down
    elif key in {"width", "height"}:
        converted = value * (mapping.across if key == "width" else mapping.down)
    else:
        return value
    return round(converted) if type(value) is int else round(converted, 2)
