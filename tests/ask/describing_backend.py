"""A back end of the real service that describes: it answers a question badly the first time, and well the second."""

from __future__ import annotations

from describer import AGAIN, good

from lightmeter.models.response import Description, Entries


class Gemini:
    """Answers by its prompt alone, under a name that the price table knows."""

    name = "gemini"
    features = frozenset({"descriptions"})

    def warm(self) -> None:
        """Nothing to load."""

    def analyze(self, pictures, features, options):
        """One description for each picture."""
        text = good() if AGAIN in (options.prompt or "") else "a cup, I think"
        return [Entries(descriptions=[Description(description=text, source=self.name)]) for _ in pictures]
