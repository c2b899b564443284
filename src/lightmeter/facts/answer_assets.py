"""The assets (images and videos) of an answer as a list, whatever shape `all.assets` has. Pure.

Both matching assets to rows and reading their facts use positions in this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lightmeter.facts.columns import FACT_TABLES

_ASSET_FIELDS: Final = frozenset((*FACT_TABLES, "frames"))


def listed_assets(results: Mapping[str, Any]) -> list[Any]:
    """Return the entries of `assets`, one for each image or video, in the object `all` of an answer. Never raises.

    A list is returned unchanged. An object of assets gives its values: sorted by key if all keys are indexes (`0`, `1`,
    …), else in their order. An asset without a name gets its key as its name, unless the key is an index. An object
    that is an asset itself (its `name` is a text, or it has a feature such as `tags`) gives a list of one. Any other
    value, and an object that holds no object, gives an empty list.
    """
    assets = results.get("assets")
    if isinstance(assets, list):
        return assets
    if not isinstance(assets, dict) or not assets:
        return []
    if isinstance(assets.get("name"), str) or not _ASSET_FIELDS.isdisjoint(assets):
        return [assets]
    if not any(isinstance(asset, dict) for asset in assets.values()):
        return []
    if all(map(_is_index, assets)):
        return [asset for _, asset in sorted(assets.items(), key=lambda pair: int(pair[0]))]
    return [_with_name(asset, key) for key, asset in assets.items()]


def frame_number(index: Any, position: int) -> int:
    """Return the number of a video frame: its field `index` if that is a 32-bit number from 0 on, else `position`."""
    return index if type(index) is int and 0 <= index < 2**31 else position


def _is_index(key: str) -> bool:
    # int() refuses texts of more than 4300 digits.
    return key.isascii() and key.isdigit() and len(key) < 20  # noqa: PLR2004


def _with_name(asset: Any, key: str) -> Any:
    if not isinstance(asset, dict) or _is_index(key):
        return asset
    name = asset.get("name")
    return asset if isinstance(name, str) and name else {**asset, "name": key}
