"""Fits the curves of `imagenet.tag_scorer`: `python -m tests.bench.quality.fit_tag_scores` prints the parameters.

Logistic regression of "this tag is right" on the log odds of its summed probability, for all tags of at least two in a
hundred, by Newton's method with halved steps and a ridge of 0.01. Pictures: `labels/tags_fit.csv`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightmeter.service.backends.imagenet.tag_groups import GROUPS
from lightmeter.service.backends.imagenet.tag_scorer import CalibrationCurve
from lightmeter.service.backends.imagenet.tagger import build_tag_scorer
from tests.bench.quality.quality_data import labelled
from tests.bench.quality.tag_truth import outputs, right_tags

LEAST = 0.02
RIDGE = 0.01
ROUNDS = 100


def logistic(features: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of a logistic regression; features: samples by columns."""

    def loss(weights: NDArray[np.float64]) -> float:
        odds = features @ weights
        return float((np.logaddexp(0, odds) - right * odds).sum() + RIDGE * (weights @ weights) / 2)

    weights = np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        guess = 1 / (1 + np.exp(-(features @ weights)))
        slope = features.T @ (guess - right) + RIDGE * weights
        bend = (features * (guess * (1 - guess))[:, None]).T @ features + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(bend, slope)
        while loss(weights - step) > loss(weights) and np.abs(step).max() > 1e-9:
            step = step / 2
        weights = weights - step
    return weights


def fitted() -> tuple[CalibrationCurve, CalibrationCurve]:
    """Fit both curves: of single classes, and of general words."""
    pictures, table = labelled("tags_fit"), build_tag_scorer()
    classes = outputs("tags_fit")[0]
    summed = np.stack([table.probabilities(row) for row in classes]).astype(float)
    right = right_tags(pictures, table)[:, : summed.shape[1]]
    is_group = np.array([name in GROUPS for name in table.names[: summed.shape[1]]])
    odds = np.log(np.clip(summed, 1e-6, 1) / np.clip(1 - summed, 1e-6, 1))
    sizes = np.broadcast_to(np.log(table.class_counts[: summed.shape[1]]), summed.shape)
    used = summed >= LEAST
    one, many = used & ~is_group, used & is_group
    single = logistic(np.stack([odds[one], np.ones(one.sum())], 1), right[one].astype(float))
    group = logistic(np.stack([odds[many], sizes[many], np.ones(many.sum())], 1), right[many].astype(float))
    return CalibrationCurve(float(single[0]), 0.0, float(single[1])), CalibrationCurve(
        *(float(weight) for weight in group)
    )


if __name__ == "__main__":
    for curve in fitted():
        print(curve)  # noqa: T201
