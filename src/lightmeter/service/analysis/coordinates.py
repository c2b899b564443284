"""From pixels of what a back end was given to pixels of the asset: in one place, for all back ends.

A back end answers in pixels of the picture that it was given, which may be smaller than the asset, or a part of it.
Readers of an answer know the asset alone: its `width` and `height` stand beside the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from lightmeter.media.image_transforms import InputTransform, PixelMapping, pixel_mapping
from lightmeter.models.response import Entries, Wire
from lightmeter.service.ingest.decode import DecodedPictures

__all__ = ["in_asset_pixels", "moved"]

_FEATURES: Final = ("brands", "faces", "texts")
"""Features whose entries say where they are."""

_ACROSS: Final = frozenset({"x", "left", "right"})
_DOWN: Final = frozenset({"y", "top", "bottom"})
_SAME: Final = PixelMapping(0, 0, 1, 1)

EntryT = TypeVar("EntryT", bound=Wire)


def in_asset_pixels(found: Sequence[Entries], view: InputTransform, pictures: DecodedPictures) -> list[Entries]:
    """What a back end found in the pictures of an asset, with coordinates in pixels of the asset.

    Args:
        found: What was found in each picture, in order.
        view: How the back end looks at pictures.
        pictures: The pictures that it was given, and the measures of the asset.
    """
    placements = (pixel_mapping(view, pictures.width, pictures.height, seen) for seen in pictures.seen[view])
    return [_placed(entries, placement) for entries, placement in zip(found, placements, strict=True)]


def _placed(entries: Entries, placement: PixelMapping) -> Entries:
    named = {feature: getattr(entries, feature) for feature in _FEATURES}
    if placement == _SAME or not any(named.values()):
        return entries
    return entries.model_copy(
        update={feature: [_entry(each, placement) for each in those] for feature, those in named.items() if those}
    )


def _entry(entry: EntryT, placement: PixelMapping) -> EntryT:
    return type(entry).model_validate(moved(entry.model_dump(), placement))


def moved(value: Any, placement: PixelMapping) -> Any:
    """A JSON value with its coordinates moved: at any depth, the numbers called as below; all else stays.

    `x`, `left` and `right`, `y`, `top` and `bottom` are positions; `width` and `height` are lengths. Integers are
    rounded to integers, other numbers to hundredths of a pixel.

    Args:
        value: The value, in pixels of a view.
        placement: Where the view lies.
    """
    if isinstance(value, list):
        return [moved(inner, placement) for inner in value]
    if not isinstance(value, dict):
        return value
    return {key: _number(key, inner, placement) for key, inner in value.items()}


def _number(key: str, value: Any, placement: PixelMapping) -> Any:
    if type(value) not in {int, float}:
        return moved(value, placement)
    if key in _ACROSS:
        at = placement.left + value * placement.across
    elif key in _DOWN:
        at = placement.top + value * placement.down
    elif key in {"width", "height"}:
        at = value * (placement.across if key == "width" else placement.down)
    else:
        return value
    return round(at) if type(value) is int else round(at, 2)
