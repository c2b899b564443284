"""From the 1000 class probabilities of a picture to the scores of its tags. Pure: arrays in, arrays out.

The probability of a tag is the sum of the probabilities of its classes. Its score is a logistic function of that
(Platt scaling, John Platt, 1999), fitted on named pictures so that a tag of score s is right in about s of all cases:

    score = 1 / (1 + exp(-(slope * log(p / (1 - p)) + size * log(classes) + intercept)))

The network spreads a tenth to a quarter of its belief evenly over all classes (it was trained with smoothed labels),
so a tag of many classes has a high sum by chance; the term with `size` allows for that. Single classes and general
words have a curve each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLASS_CURVE", "GROUP_CURVE", "SPECIFICITY_MARGIN", "CalibrationCurve", "TagScorer"]

Scores: TypeAlias = NDArray[np.float64]

SPECIFICITY_MARGIN: Final = 1e-4
"""A general word that would score less than a specific one gets its score less this, the last digit that is answered:
the best tag of a picture is then the specific one, also for readers who sort by the score alone."""

_LEAST: Final = 1e-6
"""Probabilities are kept this far from 0 and 1: the logarithm of the odds has no value there."""
_SCENE_SIZE: Final = 1000
"""A word for a scene says less than a word for a thing: it counts as more general than all of them."""


@dataclass(frozen=True, slots=True)
class CalibrationCurve:
    """The parameters of a fitted logistic curve.

    Attributes:
        slope: Weight of the log odds of the summed probability; above 0, so that the order is kept.
        size: Weight of the logarithm of the number of classes.
        intercept: Added to both.
    """

    slope: float
    size: float
    intercept: float

    def scores(
        self, probabilities: NDArray[np.floating[Any]], classes: NDArray[np.integer[Any]]
    ) -> NDArray[np.float64]:
        """Turn summed probabilities (0 to 1) into scores (0 to 1).

        Args:
            probabilities: One for each tag.
            classes: How many classes were summed up, 1 or more for each tag.
        """
        kept = np.clip(probabilities.astype(np.float64), _LEAST, 1 - _LEAST)
        odds = self.slope * np.log(kept / (1 - kept)) + self.size * np.log(classes) + self.intercept
        scores: Scores = 1 / (1 + np.exp(-odds))
        return scores


CLASS_CURVE: Final = CalibrationCurve(slope=1.103, size=0.0, intercept=-0.021)
"""For single classes; a probability of .5 is a score of .5."""
GROUP_CURVE: Final = CalibrationCurve(slope=1.627, size=-0.513, intercept=3.579)
"""For general words.

Both were fitted by `tests/bench/quality/fit_tag_scores.py` on the 565 pictures of `labels/tags_fit.csv` beside it (243
photographs of the Debian package `gcompris-qt-data` 3.1-2, 322 cut-out photographs of `tuxpaint-stamps-default`
2022.06.04-1). `tests/bench/quality/test_tags_quality.py` measures them on 134 photographs of eleven other packages.
"""


class TagScorer:
    """All tags, their classes, and which of them are more general than others.

    Args:
        members: Tag to the indices of its classes.
        groups: Which tags are general words rather than single classes.
        curves: Of the single classes, and of the general words.
        scenes: Words that are scored from elsewhere; one that is a tag already gets the higher of its two scores.
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
        above = [
            (specific, general)
            for general, classes in enumerate(members.values())
            if len(classes) > 1
            for specific, part in enumerate(members.values())
            if part < classes
        ]
        self._specific, self._general = np.array(above, np.intp).reshape(-1, 2).T

    def probabilities(self, classes: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Sum the probabilities of the classes (shape 1000) up to those of the tags that have classes, at most 1."""
        # Not a matrix product: BLAS would wake its own threads for it and take them from the models.
        return np.minimum(np.add.reduceat(classes[self._classes], self._starts), 1)

    def scores(self, classes: NDArray[np.floating[Any]], scenes: Scores | None = None) -> Scores:
        """Score each tag, 0 to 1; a more general tag scores at most `SPECIFICITY_MARGIN` less than a more specific one.

        Args:
            classes: Probability of each of the 1000 classes.
            scenes: Score of each word of `scenes`; none: 0 for all of them.
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
        """Name the tags that are more general than one."""
        row = self.names.index(name)
        return frozenset(self.names[general] for general in self._general[self._specific == row])
