"""Matches lines of text with a list of brand names.

The list is in `brand_names.txt`; `brand_names.LICENSE.txt` says where it comes from. A line is compared as a whole:
matches of single words were mostly false.
"""

from __future__ import annotations

import unicodedata
from importlib.resources import files
from typing import Final

MIN_LETTERS: Final = 5
"""Fewest letters of a name in the list, except for a few well-known ones: shorter names are often other words."""


def brand_key(text: str) -> str:
    """Return the letters and digits of a text, without accents and case: equal for `McDonald's®` and `MCDONALDS`."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in decomposed if character.isalnum())


class BrandNames:
    """List of known brand names, about 5 MB in memory."""

    def __init__(self) -> None:
        text = (files("lightmeter.service.backends.local") / "brand_names.txt").read_text(encoding="utf-8")
        self._names = {brand_key(name): name for name in text.splitlines()}

    def __len__(self) -> int:
        return len(self._names)

    def find(self, text: str) -> str | None:
        """Return the brand whose name is the whole of `text`, as the list spells it; None if there is none."""
        return self._names.get(brand_key(text))
