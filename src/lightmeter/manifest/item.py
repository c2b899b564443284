"""Manifest row: the picture or video to analyze, its stable id, and the problem if it cannot be analyzed."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from lightmeter.wire.constants import IMAGE_SUFFIXES, MORE_VIDEO_SUFFIXES, VIDEO_SUFFIXES

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""Any JSON value."""

MediaKind: TypeAlias = Literal["image", "video"]

MEDIA_SUFFIXES: Final = (*IMAGE_SUFFIXES, *VIDEO_SUFFIXES, *MORE_VIDEO_SUFFIXES)
MEDIA_KINDS: Final[tuple[MediaKind, ...]] = ("image", "video")


@dataclass(frozen=True, slots=True)
class Item:
    """One row of a manifest; a row that cannot be analyzed is an item with a problem, never an exception.

    Attributes:
        seq: Position in the manifest, from 0; blank lines and comments are not counted.
        item_id: The row's own `id` as text, else `stable_id` of the canonical URL or path. Rows with the same URL
            have the same `item_id`; the planner makes the ids unique later.
        url: URL or path as written in the manifest, without surrounding white space.
        path: Absolute path of a local file, or `TarMember.path` of a file in a tar; None for a URL.
        kind: `image` or `video`, as the row's column `kind` says; None if it says nothing.
        extra: Cells of all columns but those of the URL, path, id and kind, unchanged, by column name.
        problem: Why this row cannot be analyzed, as a sentence; None if it can.
        has_own_id: Whether `item_id` is the row's own `id` from the manifest.
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
    """Return the id of a row without its own id: 16 hex digits of BLAKE2b over `identity`, its canonical URL or path.

    An id has 64 bits: among a million items, two share an id with a probability of 3e-8.
    """
    return blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
