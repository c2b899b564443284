"""The class `Item`, one row of a manifest: the picture or video to analyze, its id, and the problem if it has one."""

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
    """One row of a manifest. A row that cannot be analyzed does not raise an exception: it is an item with a `problem`.

    Attributes:
        seq: Position in the manifest, from 0; blank lines and comments are not counted.
        item_id: The row's own `id` as text, or the key of a sample in a tar; if it has none, `stable_id` of its
            canonical URL or path. Then rows with the same URL have the same `item_id`; the planner makes the ids unique
            later.
        url: URL or path as written in the manifest, without surrounding white space.
        path: Absolute path of a local file, or `TarMember.path` of a file in a tar; None for a URL.
        kind: `image` or `video`, if the row's column `kind` says so; else None.
        extra: Column → cell, unchanged, for all columns but those of the URL, path, id and kind.
        problem: Why this row cannot be analyzed, as a sentence; None if it can.
        has_own_id: Whether `item_id` is the row's own `id` from the manifest. The key of a sample in a tar does not
            count as such, because other tars may have samples with the same key.
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
    """Return the id of a row that has no own id: 16 hex digits of BLAKE2b over `identity`, its canonical URL or path.

    An id has 64 bits: the probability that any two of a million items share an id is 3e-8.
    """
    return blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
