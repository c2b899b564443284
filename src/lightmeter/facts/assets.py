"""The assets of an answer as a list, whatever shape `all.assets` has. Pure.

Who matches assets to rows and who reads their facts both count positions in this list, so that they agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lightmeter.facts.columns import FACT_TABLES

__all__ = ["listed_assets"]

_ASSET_FIELDS: Final = frozenset((*FACT_TABLES, "frames"))


def listed_assets(results: Mapping[str, Any]) -> list[Any]:
    """The entries of `all.assets`, in order. Never raises.

    A list is returned as it is. An object of assets gives its values: in order of their keys where all keys are
    indexes (`0`, `1`, …), else as they stand; an asset that does not say its name is named by its key, unless the key
    is an index. An object that is an asset itself (it has a text as its `name`, or a feature) is a list of one.

    Args:
        results: The object `all` of an answer.

    Returns:
        An empty list for anything else, and for an object without any object in it. The answer is not changed.
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
        return [asset for _, asset in sorted(assets.items(), key=lambda one: int(one[0]))]
    return [_named(asset, key) for key, asset in assets.items()]


def _is_index(key: str) -> bool:
    # int() refuses texts of more than 4300 digits.
    return key.isascii() and key.isdigit() and len(key) < 20  # noqa: PLR2004


def _named(asset: Any, key: str) -> Any:
    if not isinstance(asset, dict) or _is_index(key):
        return asset
    name = asset.get("name")
    return asset if isinstance(name, str) and name else {**asset, "name": key}
