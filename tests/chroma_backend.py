"""A back end of another package: embeddings made of a picture's colours, which turning and brightening leave alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lightmeter.wire.response import Embedding, Entries, Tag

BINS = 12
MODEL = "chroma-1"


def vector_of(picture):
    """The square roots of a histogram of red and green shares, shape (BINS**2,), of unit length."""
    shares = picture.reshape(-1, 3) + 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    counts, _, _ = np.histogram2d(shares[:, 0], shares[:, 1], bins=BINS, range=((0.1, 0.7), (0.1, 0.7)))
    roots = np.sqrt(counts.ravel() + 1e-9)
    return roots / np.linalg.norm(roots)


class Chroma:
    """Back end `chroma`: one tag for every picture, and embeddings."""

    name = "chroma"
    features = frozenset({"tags", "embeddings"})
    prices: ClassVar = {"tags": 0.5, "embeddings": 1.5}

    def warm(self):
        pass

    def analyze(self, pictures, features, options):
        return [self._entries(picture, features) for picture in pictures]

    def _entries(self, picture, features):
        entries = Entries()
        if "tags" in features:
            entries.tags["picture"] = [Tag(name="picture", score=1.0, source=self.name)]
        if "embeddings" in features:
            vector = np.round(vector_of(picture), 7).tolist()
            entries.embeddings = [Embedding(model=MODEL, vector=vector, source=self.name)]
        return entries
