"""What the tags of a picture are held against, for the benchmark of tags and for the fit of their scores.

Labels name what is in a picture (`squirrel;fox squirrel`). A tag is right if it is one of these words, or a more
general tag of one (`mammal`, `animal`). Words are strict for species and kinds: a near miss is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from quality_data import Picture, labelled, open_rgb

from lightmeter.media.views import view_of
from lightmeter.service.backends.efficientnet_lite import INPUT, PROBABILITIES
from lightmeter.service.backends.imagenet import ImageNet
from lightmeter.service.backends.imagenet_scores import TagTable


@cache
def class_probabilities(labels: str) -> NDArray[np.float32]:
    """Run the model on each picture of `labels/LABELS.csv`: probabilities, pictures by 1000."""
    backend = ImageNet()
    session, _ = backend._load()
    view = backend.traits.view
    inputs = (view_of(open_rgb(picture), view)[None] for picture in labelled(labels))
    return np.stack([session.run([PROBABILITIES], {INPUT: one})[0][0] for one in inputs])


def right_tags(pictures: Sequence[Picture], table: TagTable) -> NDArray[np.bool_]:
    """Which tags are true of which picture: pictures by tags."""
    generals = {name: table.generals(name) for name in table.names}
    right = np.zeros((len(pictures), len(table.names)), bool)
    for row, picture in enumerate(pictures):
        words = set(picture.labels["words"].split(";"))
        accepted = words.union(*(generals.get(word, frozenset()) for word in words))
        right[row] = [name in accepted for name in table.names]
    return right
