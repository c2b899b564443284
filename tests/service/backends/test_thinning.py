"""Thinning drops rows and columns of large pictures only, and moves no result by much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.backends.registry import load
from lightmeter.service.backends.thinning import thinned


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 300))
def test_enough_is_left(height, width, side):
    """The shorter side keeps four times what the model needs, or all it had; nothing is copied."""
    picture = np.broadcast_to(np.uint8(0), (height, width, 3))
    left = thinned(picture, side)
    assert min(left.shape[:2]) >= min(height, width, 4 * side)
    assert min(left.shape[:2]) < 8 * side or min(height, width) < 8 * side
    assert np.shares_memory(left, picture)


@pytest.mark.parametrize(("backend", "feature"), [("imagenet", "tags"), ("opennsfw", "nsfw")])
def test_large_copies_are_rated_alike(options, photo, backend, feature):
    """A photo enlarged sixfold is answered as the photo is: thinning takes away what enlarging brought."""
    picture = photo("coffee.jpg")
    large = picture.repeat(6, axis=0).repeat(6, axis=1)
    small, big = load(backend).analyze([picture, large], frozenset({feature}), options)
    if feature == "tags":
        assert next(iter(small.tags)) == next(iter(big.tags))
    else:
        assert small.nsfw[0].score == pytest.approx(big.nsfw[0].score, abs=0.02)
