"""Recall and false alarms of the back end `centerface` (figures in `centerface`'s docstring).

Nothing was trained on these pictures; but the second look was designed, and the curve of the tag's score fitted, while
they were seen. A face counts as found when the picture has as many: the places were looked at by eye once.
"""

from __future__ import annotations

import time

import pytest

from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.local.centerface import FACE_SIDE, CenterFace
from tests.bench.quality.face_pictures import labelled, report

LEAST_RECALL = 130 / 136
MAX_FALSE = 1 / 189


@pytest.fixture(scope="module")
def pictures():
    """Each labelled picture as the service hands it over, decoded once."""
    return [(one, transform_array(one.open(), FitWithin(FACE_SIDE))) for one in labelled()]


def measured(pictures, features):
    """What is answered for each picture, and the milliseconds each took."""
    backend = CenterFace()
    backend.warm()
    start = time.process_time()
    answers = [backend.analyze([picture], features, AnalysisOptions())[0] for _, picture in pictures]
    return answers, (time.process_time() - start) / len(pictures) * 1000


def test_faces(pictures):
    """Of 136 faces 130 are found, and on 189 photographs without any at most one."""
    answers, milliseconds = measured(pictures, frozenset({"faces"}))
    there = [(one, len(answer.faces)) for (one, _), answer in zip(pictures, answers, strict=True)]
    faces = sum(one.faces for one, _ in there)
    found = sum(min(one.faces, count) for one, count in there)
    extra = sum(max(count - one.faces, 0) for one, count in there if one.faces)
    empty = [count for one, count in there if not one.faces]
    report(f"\nfaces: {found} of {faces} found, {extra} more than there are, {milliseconds:.0f} ms")
    report(f"on {len(empty)} photographs without a face: {sum(empty)} on {sum(map(bool, empty))} of them")
    for one, count in there:
        if count != one.faces:
            report(f"wrong: {one.package} {one.file}: {count} of {one.faces}")
    assert found / faces >= LEAST_RECALL
    assert sum(map(bool, empty)) / len(empty) <= MAX_FALSE


def test_person(pictures):
    """The tag alone, from a smaller input, is on nineteen of twenty pictures with a face, and seldom elsewhere."""
    answers, milliseconds = measured(pictures, frozenset({"tags"}))
    for least in (0, 0.5, 0.9):
        tagged = [
            (bool(one.faces), bool(answer.tags) and answer.tags["person"][0].score >= least)
            for (one, _), answer in zip(pictures, answers, strict=True)
        ]
        right = sum(there and tag for there, tag in tagged)
        wrong = sum(tag and not there for there, tag in tagged)
        pictures_with = sum(there for there, _ in tagged)
        report(f"\nperson, score {least} or more: {right} of {pictures_with} pictures, {wrong} wrong")
        if not least:
            assert right / pictures_with >= 0.95
            assert wrong / sum(not there for there, _ in tagged) <= MAX_FALSE
    report(f"{milliseconds:.0f} ms")
