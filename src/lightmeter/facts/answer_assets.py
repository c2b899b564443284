"""The assets (images and videos) of an answer as a list, whatever shape `all.assets` has. Pure.

Both matching assets to rows and reading their facts use positions in this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lightmeter.facts.columns import FACT_TABLES

_ASSET_FIELDS: Final = frozenset((*FACT_TABLES, "frames"))


def listed_assets(results: Mapping[str, Any]) -> list[Any]:
    """Return the assets in `results`, the object `all` of an answer: one entry for each image or video. Never raises.

    The field `assets` may have several shapes:

    - A list is returned unchanged.
    - An object that is itself an asset (its `name` is a text, or it has a feature such as `tags`) gives a list of one.
    - Any other object gives its values. If all keys are indexes (`0`, `1`, …), they are sorted by key. Otherwise, they
      keep the order of the answer, and an asset without a name gets its key as its name.
    - An object none of whose values is an object, and any other value, give an empty list.
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
    """Return the number of a captured frame, from 0.

    That is `index`, the field `index` of the frame in an answer, if it is a 32-bit number of 0 or more. Otherwise, it
    is `position`, the position of the frame in the answer's list, from 0.
    """
    return index if type(index) is int and 0 <= index < 2**31 else position


def _is_index(key: str) -> bool:
    # int() refuses texts of more than 4300 digits.
    return key.isascii() and key.isdigit() and len(key) < 20  # noqa: PLR2004


def _with_name(asset: Any, key: str) -> Any:
    if not isinstance(asset, dict) or _is_index(key):
        return asset
    name = asset.get("name")
    return asset if isinstance(name, str) and name else {**asset, "name": key}
