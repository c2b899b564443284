"""Measures of a picture's quality have the values that follow from their definitions."""

from math import log2, sqrt

import numpy as np
import pytest

from lightmeter.media.image_quality import differing_share, measure_quality
from lightmeter.testing import blank_picture

NOISE = np.random.default_rng(3).integers(0, 256, (128, 256, 3), dtype=np.uint8)


@pytest.mark.parametrize("level", [0, 100, 255])
def test_picture_of_one_gray(level):
    """A picture of one gray has its brightness at both ends, no color and no other point."""
    found = measure_quality(blank_picture(level))
    assert (found.dark_level, found.bright_level) == (pytest.approx(level / 255), pytest.approx(level / 255))
    assert (found.differing_share, found.color_difference) == (0, 0)


def test_brightness_weighs_channels():
    """The brightness of a color is the root of the weighted mean of its squared channels."""
    picture = np.full((20, 20, 3), (200, 100, 50), dtype=np.uint8)
    expected = sqrt(0.241 * 200**2 + 0.691 * 100**2 + 0.068 * 50**2) / 255
    found = measure_quality(picture)
    assert (found.dark_level, found.bright_level) == (pytest.approx(expected), pytest.approx(expected))
    assert found.color_difference == 150


def test_brightness_ignores_few_points():
    """One point in 200 that is bright, or one in 30 that is dark, does not change the levels of a gray picture."""
    picture = blank_picture(128, width=100, height=100)
    picture.reshape(-1, 3)[:50] = 255
    picture.reshape(-1, 3)[-333:] = 0
    found = measure_quality(picture)
    assert (found.dark_level, found.bright_level) == (pytest.approx(128 / 255), pytest.approx(128 / 255))
    assert found.differing_share == pytest.approx(0.0383)


def test_information_is_the_entropy_of_all_channels():
    """Noise in every channel has 8 bits and the choice of the channel; two levels in equal parts have one bit."""
    assert measure_quality(NOISE).information == pytest.approx((8 + log2(3)) / 10, rel=0.01)
    levels = np.zeros((1, 256), dtype=np.int64)
    levels[0, [7, 200]] = 500
    assert measure_quality(blank_picture(), levels).information == pytest.approx(0.1)
    levels[0, 200] = 0
    assert measure_quality(blank_picture(), levels).information == 0


def test_sharpness_falls_with_blur():
    """Each wider blur of a picture has a lower sharpness."""
    rows = []
    for width in (1, 3, 9, 27):
        kernel = np.ones(width) / width
        soft = np.apply_along_axis(np.convolve, 0, NOISE[:64, :64].astype(float), kernel, "same")
        rows.append(measure_quality(np.apply_along_axis(np.convolve, 1, soft, kernel, "same").astype(np.uint8)))
    sharpness = [row.sharpness for row in rows]
    assert sharpness == sorted(sharpness, reverse=True)
    assert sharpness[0] > 0.5 > sharpness[-1]


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 256, 3), (256, 1, 3), (2, 3, 3)])
def test_pictures_of_any_shape_are_measured(shape):
    """Pictures of a single row, column or point have measures, too."""
    found = measure_quality(np.full(shape, 7, dtype=np.uint8))
    assert found.differing_share == differing_share(np.full(shape, 7, dtype=np.uint8)) == 0
    assert 0 <= found.sharpness <= 1
