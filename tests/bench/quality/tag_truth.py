"""True tags of labeled pictures, for the tag benchmark and for fitting tag scores.

Labels name what is in a picture (`squirrel;fox squirrel`). A tag is right if it is one of these words, or a more
general tag of one (`mammal`, `animal`). Words are strict for species and kinds: a near miss is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lightmeter.media.image_transforms import transform_array
from lightmeter.service.backends.imagenet.efficientnet_lite_dimensions import INPUT, POOLED, PROBABILITIES
from lightmeter.service.backends.imagenet.scene_words import is_grey
from lightmeter.service.backends.imagenet.tag_scorer import TagScorer
from lightmeter.service.backends.imagenet.tagger import ImageNet
from lightmeter.service.backends.onnx_session import open_session
from tests.bench.quality.quality_data import Picture, labelled, open_rgb


@cache
def outputs(labels: str) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
    """Run the model on each picture of `labels/LABELS.csv`: 1000 probabilities, 1280 features, whether it is grey."""
    backend = ImageNet()
    session = open_session(backend._model_bytes())
    transform = backend.traits.transform
    transformed = [transform_array(open_rgb(picture), transform) for picture in labelled(labels)]
    rows = [session.run([PROBABILITIES, POOLED], {INPUT: one[None]}) for one in transformed]
    first, second = (np.concatenate([row[output] for row in rows]) for output in range(2))
    return first, second, np.array([is_grey(one) for one in transformed])


def right_tags(pictures: Sequence[Picture], table: TagScorer) -> NDArray[np.bool_]:
    """Which tags are true of which picture: pictures by tags."""
    more_general_tags = {name: table.more_general_tags(name) for name in table.names}
    right = np.zeros((len(pictures), len(table.names)), bool)
    for row, picture in enumerate(pictures):
        words = set(picture.labels["words"].split(";"))
        accepted = words.union(*(more_general_tags.get(word, frozenset()) for word in words))
        right[row] = [name in accepted for name in table.names]
    return right


def add_scenes(right: NDArray[np.bool_], scenes: Sequence[Picture], table: TagScorer) -> NDArray[np.bool_]:
    """Add the words for scenes that are true of the same pictures. One that the labels leave open counts as wrong."""
    added = right.copy()
    for row, picture in enumerate(scenes):
        words = set(picture.labels["words"].split(";"))
        added[row] |= [name in words for name in table.names]
    return added
