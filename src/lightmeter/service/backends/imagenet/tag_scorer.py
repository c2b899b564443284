"""Converts the 1000 class probabilities of a picture to tag scores. No I/O.

The probability p of a tag is the sum of the probabilities of its classes. The score of a tag is a logistic function of
p (Platt scaling, John Platt, 1999), fitted on labeled pictures so that a fraction s of all tags with score s is right:

    score = 1 / (1 + exp(-(slope * log(p / (1 - p)) + size * log(classes) + intercept)))

The network was trained with smoothed labels and spreads a tenth to a quarter of the probability evenly over all
classes. So a tag of many classes has a high sum by chance; the term with `size` corrects this. Tags for single classes
and general tags (`bird`, from many classes) have separate curves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Scores: TypeAlias = NDArray[np.float64]

SPECIFICITY_MARGIN: Final = 1e-4
"""A general tag scores at least as much as each more specific tag, minus this margin. The margin is one unit of the
last digit of a returned score. It puts the more specific tag first if tags are sorted by score."""

_MIN_PROBABILITY: Final = 1e-6
"""Probabilities are clipped to at least this and at most 1 minus this, because the log odds of 0 and 1 are infinite."""
_SCENE_CLASS_COUNT: Final = 1000
"""Number of classes assumed for a scene word that has no ImageNet class. If scores are equal, tags with fewer
classes come first, so such a scene word comes after all tags for things."""


@dataclass(frozen=True, slots=True)
class CalibrationCurve:
    """Logistic curve that converts the probability of a tag, summed over its ImageNet classes, to a score.

    Attributes:
        slope: Weight of the log odds of the summed probability; above 0, so a higher probability gives a higher score.
        size: Weight of the logarithm of the number of classes that the tag stands for.
        intercept: Constant term.
    """

    slope: float
    size: float
    intercept: float

    def scores(
        self, probabilities: NDArray[np.floating[Any]], classes: NDArray[np.integer[Any]]
    ) -> NDArray[np.float64]:
        """Convert summed probabilities (0 to 1) to scores (0 to 1).

        Args:
            probabilities: Summed probability of each tag.
            classes: Number of classes of each tag, 1 or more.
        """
        clipped = np.clip(probabilities.astype(np.float64), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        odds = self.slope * np.log(clipped / (1 - clipped)) + self.size * np.log(classes) + self.intercept
        scores: Scores = 1 / (1 + np.exp(-odds))
        return scores


CLASS_CURVE: Final = CalibrationCurve(slope=1.103, size=0.0, intercept=-0.021)
"""Curve for tags of single classes. It converts a probability of .5 to a score of about .5."""
GROUP_CURVE: Final = CalibrationCurve(slope=1.627, size=-0.513, intercept=3.579)
"""Curve for general tags.

`tests/bench/quality/fit_tag_scores.py` fitted `CLASS_CURVE` and `GROUP_CURVE` on 565 pictures (`labels/tags_fit.csv`
in its folder): 243 photographs of the Debian package `gcompris-qt-data` 3.1-2 and 322 cut-out photographs of
`tuxpaint-stamps-default` 2022.06.04-1. `tests/bench/quality/test_tags_quality.py` measures both curves on 126
photographs of nine other packages.
"""


class TagScorer:
    """Converter of the probabilities of the 1000 ImageNet classes to the scores of all tags.

    Args:
        members: Tag → indices of its classes.
        groups: General tags. `members` also holds these; its other tags are for single classes.
        curves: Two calibration curves: the first for tags of single classes, the second for general tags.
        scenes: Tags for scenes, such as `outdoor`. Their scores come from the caller of `scores`. A tag that is in both
            `scenes` and `members` gets the higher of its two scores.

    Attributes:
        names: All tags: those of `members`, then the `scenes` that are not in `members`.
        class_counts: Number of ImageNet classes of each tag in `names`; 1000 for a scene that is not in `members`.
    """

    def __init__(
        self,
        members: Mapping[str, frozenset[int]],
        groups: frozenset[str],
        curves: tuple[CalibrationCurve, CalibrationCurve] = (CLASS_CURVE, GROUP_CURVE),
        scenes: tuple[str, ...] = (),
    ) -> None:
        self.names = (*members, *(word for word in scenes if word not in members))
        own_counts = np.array([len(indices) for indices in members.values()])
        self.class_counts = np.append(own_counts, np.full(len(self.names) - len(members), _SCENE_CLASS_COUNT))
        self._own = len(members)
        self._scenes = np.array([self.names.index(word) for word in scenes], np.intp)
        self._classes = np.concatenate([sorted(indices) for indices in members.values()]).astype(np.intp)
        self._starts = np.cumsum(own_counts) - own_counts
        self._is_group = np.array([name in groups for name in members])
        self._curves = curves
        specific_general_pairs = [
            (specific, general)
            for general, classes in enumerate(members.values())
            if len(classes) > 1
            for specific, part in enumerate(members.values())
            if part < classes
        ]
        self._specific, self._general = np.array(specific_general_pairs, np.intp).reshape(-1, 2).T

    def probabilities(self, classes: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Return the probability of each tag: the sum over its ImageNet classes, at most 1.

        `classes` has the probability of each of the 1000 ImageNet classes. The result is in the order of `members`.
        """
        # Not a matrix product: BLAS would start threads, which compete with the models.
        return np.minimum(np.add.reduceat(classes[self._classes], self._starts), 1)

    def scores(self, classes: NDArray[np.floating[Any]], scenes: Scores | None = None) -> Scores:
        """Return the score of each tag, 0 to 1, in the order of `names`.

        A general tag (`bird`) scores at least as much as each more specific tag (`hen`), less 0.0001.

        Args:
            classes: Probability of each of the 1000 ImageNet classes.
            scenes: One score, 0 to 1, for each tag in the constructor's `scenes`, in the same order; None means 0 for
                all.
        """
        summed = self.probabilities(classes)
        single, group = (curve.scores(summed, self.class_counts[: self._own]) for curve in self._curves)
        own = np.zeros(len(self.names))
        own[: self._own] = np.where(self._is_group, group, single)
        if scenes is not None:
            own[self._scenes] = np.maximum(own[self._scenes], scenes)
        scores = own.copy()
        np.maximum.at(scores, self._general, own[self._specific] - SPECIFICITY_MARGIN)
        return scores

    def more_general_tags(self, name: str) -> frozenset[str]:
        """Return the tags that are more general than the tag `name`, such as `bird` for `hen`."""
        row = self.names.index(name)
        return frozenset(self.names[general] for general in self._general[self._specific == row])
