"""Converts coordinates from pixels of a back end's input picture to pixels of the asset.

A back end returns pixels of its input picture, which may be scaled or cropped. Clients know only the size of the asset,
which is in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from lightmeter.media.image_transforms import InputTransform, PixelMapping, pixel_mapping
from lightmeter.service.ingest.decode import DecodedPictures
from lightmeter.wire.response import Entries, Wire

_FEATURES: Final = ("brands", "faces", "texts")
"""Features whose entries have coordinates."""

_HORIZONTAL: Final = frozenset({"x", "left", "right"})
_VERTICAL: Final = frozenset({"y", "top", "bottom"})
_IDENTITY: Final = PixelMapping(0, 0, 1, 1)

EntryT = TypeVar("EntryT", bound=Wire)


def in_asset_pixels(entries: Sequence[Entries], view: InputTransform, pictures: DecodedPictures) -> list[Entries]:
    """Return the entries of a back end with coordinates in pixels of the asset.

    Args:
        entries: Entries of each picture, in order.
        view: View (input transform) that the back end analyzed.
        pictures: The decoded pictures, with the size of the asset.
    """
    mappings = (
        pixel_mapping(view, pictures.width, pictures.height, pixels) for pixels in pictures.pixels_by_view[view]
    )
    return [_convert_entries(each, mapping) for each, mapping in zip(entries, mappings, strict=True)]


def _convert_entries(entries: Entries, mapping: PixelMapping) -> Entries:
    located = {feature: getattr(entries, feature) for feature in _FEATURES}
    if mapping == _IDENTITY or not any(located.values()):
        return entries
    return entries.model_copy(
        update={
            feature: [_convert_entry(each, mapping) for each in each_of]
            for feature, each_of in located.items()
            if each_of
        }
    )


def _convert_entry(entry: EntryT, mapping: PixelMapping) -> EntryT:
    return type(entry).model_validate(convert_coordinates(entry.model_dump(), mapping))


def convert_coordinates(value: Any, mapping: PixelMapping) -> Any:
    """Return a JSON value with all coordinates in it converted, at any depth; other values do not change.

    `x`, `left` and `right`, `y`, `top` and `bottom` are positions; `width` and `height` are lengths. Integers are
    rounded to integers, other numbers to hundredths of a pixel.

    Args:
        value: JSON value with coordinates in pixels of an input picture.
        mapping: Position and scale of the input picture in the asset.
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
