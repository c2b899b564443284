"""One row of a manifest: what is to be analysed, its stable id, and why it cannot be, if so."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

__all__ = ["ID_HEX_DIGITS", "JSON", "MEDIA_KINDS", "Item", "MediaKind", "stable_id"]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""What a JSON text can hold."""

MediaKind: TypeAlias = Literal["image", "video"]

MEDIA_KINDS: Final[tuple[MediaKind, ...]] = ("image", "video")

ID_HEX_DIGITS: Final = 16
"""64 bits: among a million items two different ones share an id with a probability of 3e-8."""


@dataclass(frozen=True, slots=True)
class Item:
    """One row of a manifest; a row that cannot be analysed is an item with a problem, never an exception.

    Attributes:
        seq: Position in the manifest, counted from 0; blank lines and comments are not counted.
        item_id: The row's own `id` as text, else `stable_id` of the canonical URL or path. Rows that name
            the same thing share it: whoever knows all rows makes it unique.
        url: The text of the manifest, URL or path, stripped of surrounding white space.
        path: Absolute path of a local file; None for a URL.
        kind: What the row itself says it is; None when it says nothing.
        extra: All other columns, unchanged, under their own names.
        problem: Why this row cannot be analysed, as a sentence; None when it can.
        has_own_id: Whether `item_id` is the row's own.
    """

    seq: int
    item_id: str
    url: str
    path: str | None
    kind: MediaKind | None
    extra: dict[str, JSON]
    problem: str | None
    has_own_id: bool


def stable_id(identity: str) -> str:
    """The id of what has no id of its own: 16 hex digits of BLAKE2b over the canonical URL or path."""
    encoded = identity.encode("utf-8", "surrogatepass")
    return blake2b(encoded, digest_size=ID_HEX_DIGITS // 2).hexdigest()
