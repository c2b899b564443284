"""Suggests the known name that a user has probably meant by an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], *, likeness: float = 0.75) -> str:
    """Return a hint that names the known name which is most like an unknown one; an empty text if none is like it.

    `likeness` is the least similarity, 0 to 1, as `difflib` measures it.
    """
    found = get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f"Did you mean {found[0]}?" if found else ""
