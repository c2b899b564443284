"""A whole back end in one file: it tags a picture as bright or dark by its mean."""

from __future__ import annotations

from lightmeter.wire.response import Entries, Tag


class Brightness:
    """Back end `brightness`: feature `tags`."""

    name = "brightness"
    features = frozenset({"tags"})
    prices = {"tags": 1.5}  # credits for each image or video frame  # noqa: RUF012

    def warm(self):
        """Load the model here, once; raise lightmeter.errors.BackendError if that fails."""

    def analyze(self, pictures, features, options):
        """One `Entries` for each picture (height x width x 3, red green blue, 0 to 255), in order."""
        return [Entries(tags=self._tags(picture)) for picture in pictures]

    def _tags(self, picture):
        bright = round(float(picture.mean()) / 255, 4)
        scores = {"bright": bright, "dark": round(1 - bright, 4)}
        return {word: [Tag(name=word, score=score, source=self.name)] for word, score in scores.items()}
