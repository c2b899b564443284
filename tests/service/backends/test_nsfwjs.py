"""The back end `nsfwjs`: likelihoods for harmless photos."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightmeter.service.backends.local.nsfwjs import CLASS_NAMES, NsfwJs, likelihood
from lightmeter.wire.constants import LIKELIHOOD_SEVERITY

NSFW = frozenset({"nsfw"})

# The original's probabilities (TensorFlow.js 4.22, Node.js) for the same 224 x 224 pixels.
ORIGINAL = {
    "spaniels.jpg": (0.22142519, 0.01153204, 0.71165812, 0.04637305, 0.00901160),
    "squirrel.jpg": (0.77322656, 0.00303593, 0.21390362, 0.00899796, 0.00083594),
    "viaduct.jpg": (0.23577096, 0.00028268, 0.76361382, 0.00002185, 0.00031063),
}


@pytest.fixture(scope="module")
def backend():
    nsfwjs = NsfwJs()
    nsfwjs.warm()
    return nsfwjs


@pytest.mark.parametrize("name", ["astronaut.jpg", "chelsea.jpg", "coffee.jpg", "rocket.jpg"])
def test_harmless_photos_are_safe(backend, options, photo, name):
    """A photo with nothing in it is neither adult nor racy, and its entries carry a likelihood and no score."""
    (entries,) = backend.analyze([photo(name)], NSFW, options)
    assert [entry.label for entry in entries.nsfw] == ["adult", "racy"]
    assert {entry.likelihood for entry in entries.nsfw} == {"VERY_UNLIKELY"}
    assert all(entry.score is None for entry in entries.nsfw)


@pytest.mark.parametrize("name", ORIGINAL)
def test_probabilities_are_the_originals(backend, photo, name):
    """The converted model gives the published model's probabilities."""
    pixels = Image.fromarray(photo(name)).resize((224, 224), Image.Resampling.BILINEAR)
    found = backend.probabilities(np.asarray(pixels))
    assert tuple(found) == CLASS_NAMES
    assert list(found.values()) == pytest.approx(ORIGINAL[name], abs=1e-4)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_probable_is_never_less_likely(first, second):
    """Likelihood words rise with the probability and are those of the wire contract."""
    low, high = (LIKELIHOOD_SEVERITY[likelihood(value)] for value in sorted((first, second)))
    assert low <= high


def test_the_middle_asks_for_somebody_to_look():
    """Probabilities from .5 to .9 are POSSIBLE."""
    assert [likelihood(value) for value in (0, 0.1, 0.5, 0.89, 0.9, 0.99, 1)] == [
        "VERY_UNLIKELY", "UNLIKELY", "POSSIBLE", "POSSIBLE", "LIKELY", "VERY_LIKELY", "VERY_LIKELY",
    ]  # fmt: skip
