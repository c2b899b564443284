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
"""The score of a general tag is at least that of each more specific tag, less this margin: one unit of the last digit
of a returned score. With the margin, the more specific tag comes first, also for readers who sort by score."""

_MIN_PROBABILITY: Final = 1e-6
"""Probabilities are clipped to this distance from 0 and 1, where the logarithm of the odds is infinite."""
_SCENE_SIZE: Final = 1000
"""Number of classes that a scene word counts as: it is more general than any tag for a thing."""


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
"""Curve of single classes; a probability of .5 is a score of .5."""
GROUP_CURVE: Final = CalibrationCurve(slope=1.627, size=-0.513, intercept=3.579)
"""Curve of general tags.

`tests/bench/quality/fit_tag_scores.py` fitted both curves on the 565 pictures of `labels/tags_fit.csv` beside it (243
photographs of the Debian package `gcompris-qt-data` 3.1-2, 322 cut-out photographs of `tuxpaint-stamps-default`
2022.06.04-1). `tests/bench/quality/test_tags_quality.py` measures them on 126 photographs of nine other packages.
"""


class TagScorer:
    """Converter of the probabilities of the 1000 ImageNet classes to the scores of all tags.

    Args:
        members: Tag → indices of its classes.
        groups: Tags that are general words, not single classes.
        curves: Two calibration curves: first that of single classes, then that of general words.
        scenes: Tags for scenes, such as `outdoor`, whose scores the caller passes to `scores`. If such a tag is also
            in `members`, the higher score counts.
    """

    def __init__(
        self,
        members: Mapping[str, frozenset[int]],
        groups: frozenset[str],
        curves: tuple[CalibrationCurve, CalibrationCurve] = (CLASS_CURVE, GROUP_CURVE),
        scenes: tuple[str, ...] = (),
    ) -> None:
        self.names = (*members, *(word for word in scenes if word not in members))
        own_sizes = np.array([len(indices) for indices in members.values()])
        self.sizes = np.append(own_sizes, np.full(len(self.names) - len(members), _SCENE_SIZE))
        self._own = len(members)
        self._scenes = np.array([self.names.index(word) for word in scenes], np.intp)
        self._classes = np.concatenate([sorted(indices) for indices in members.values()]).astype(np.intp)
        self._starts = np.cumsum(own_sizes) - own_sizes
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
        """Return the probability of each tag: the sum over its ImageNet classes, at most 1; in the order of `members`.

        `classes` has the probability of each of the 1000 ImageNet classes.
        """
        # Not a matrix product: BLAS would start threads, which compete with the models.
        return np.minimum(np.add.reduceat(classes[self._classes], self._starts), 1)

    def scores(self, classes: NDArray[np.floating[Any]], scenes: Scores | None = None) -> Scores:
        """Return the score of each tag, 0 to 1.

        A general tag (`bird`) scores at least as much as each more specific tag (`hen`), less 0.0001.

        Args:
            classes: Probability of each of the 1000 ImageNet classes.
            scenes: Score of each tag for scenes, in the order of the constructor's `scenes`; None means 0 for all.
        """
        summed = self.probabilities(classes)
        single, group = (curve.scores(summed, self.sizes[: self._own]) for curve in self._curves)
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
