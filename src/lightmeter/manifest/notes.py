"""Counts what a manifest holds that is read otherwise than it stands there, or is left out. No I/O."""

from __future__ import annotations

from typing import Final

_MOST_KINDS: Final = 50  # in JSON lines, each row may have other columns


class ManifestNotes:
    """What was found in a manifest that no row can say, such as files of other types in a folder, with counts."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, what: str, example: str, count: int = 1) -> None:
        """Count `count` more of the things described by `what`, in the plural; the first example of them is kept."""
        if what not in self._found and len(self._found) == _MOST_KINDS:
            what = "other values or files that cannot be read"
        known, first = self._found.get(what, (0, example))
        self._found[what] = known + count, first

    def update(self, other: ManifestNotes) -> None:
        """Take over what `other` has counted."""
        self._found.update(other._found)

    @property
    def sentences(self) -> list[str]:
        """One text for each kind of thing, such as "files of another type: 3, such as notes.txt"."""
        return [f"{what}: {count}, such as {example}" for what, (count, example) in self._found.items()]
