"""Names of brands, and whether a line of text is one of them.

The list stands in `brand_names.txt`; where it comes from and how it was made stands in `brand_names.LICENSE.txt`.
A line is compared as a whole: words inside a line were tried, and mostly found brands that are not there.
"""

from __future__ import annotations

import unicodedata
from importlib.resources import files
from typing import Final

__all__ = ["LEAST_LETTERS", "BrandNames", "brand_key"]

LEAST_LETTERS: Final = 5
"""Letters of the shortest name in the list, a few well-known ones aside: shorter names are too often something else."""


def brand_key(text: str) -> str:
    """The letters and digits of a text, without accents and case: `McDonald's®` and `MCDONALDS` have the same."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in decomposed if character.isalnum())


class BrandNames:
    """The list of names, in memory: about 5 MB."""

    def __init__(self) -> None:
        text = (files("lightmeter.service.backends.local") / "brand_names.txt").read_text(encoding="utf-8")
        self._names = {brand_key(name): name for name in text.splitlines()}

    def __len__(self) -> int:
        return len(self._names)

    def find(self, text: str) -> str | None:
        """The brand that the whole of `text` names, as the brand writes itself; None if it names none."""
        return self._names.get(brand_key(text))
