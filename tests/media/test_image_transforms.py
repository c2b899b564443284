"""Transforms of pictures for models."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightmeter.errors import BrokenMedia, MediaTooLarge
from lightmeter.media.image import load_rgb, load_transformed
from lightmeter.media.image_transforms import CenterCrop, FitWithin, StretchToSquare, apply_transform, transform_array
from lightmeter.testing import tiny_jpeg, tiny_picture, tiny_png
from tests.sweeps import sweep

TRANSFORMS = (FitWithin(1024), FitWithin(20), CenterCrop(32), CenterCrop(32, 0.5), StretchToSquare(24))
SIDES = st.integers(1, 300)


def encoded(picture: Image.Image, name: str, **options) -> bytes:
    """A picture as a file."""
    stream = BytesIO()
    picture.save(stream, name, **options)
    return stream.getvalue()


@given(SIDES, SIDES, st.sampled_from(TRANSFORMS))
def test_transforms_have_their_size(width, height, transform):
    """Results have the size of the transform; whole pictures keep their proportions."""
    picture = transform_array(np.zeros((height, width, 3), np.uint8), transform)
    if isinstance(transform, FitWithin):
        longer = max(width, height)
        assert max(picture.shape[:2]) == min(longer, transform.most_side)
        assert min(picture.shape[:2]) == pytest.approx(min(width, height) * min(1, transform.most_side / longer), abs=1)
    else:
        assert picture.shape == (transform.side, transform.side, 3)
    assert picture.dtype == np.uint8


@given(SIDES, SIDES, st.sampled_from(TRANSFORMS))
def test_transform_is_idempotent(width, height, transform):
    """Applying a transform twice changes nothing."""
    picture = transform_array(np.zeros((height, width, 3), np.uint8), transform)
    assert transform_array(picture, transform) is picture


def test_small_pictures_keep_their_pixels():
    """A small picture has the exact pixels of `load_rgb`."""
    assert np.array_equal(load_transformed(tiny_png(3), [FitWithin(64)])[FitWithin(64)], load_rgb(tiny_png(3)))


def test_center_crop_excludes_the_border():
    """A center crop excludes what is outside its share."""
    rgb = np.zeros((100, 300, 3), np.uint8)
    rgb[15:85, 115:185] = 200
    assert (transform_array(rgb, CenterCrop(10, 0.5)) == 200).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("transform", [FitWithin(64), FitWithin(20), CenterCrop(33, 0.8), StretchToSquare(24)])
def test_transforms_are_upright(orientation, transform):
    """EXIF orientation is applied to transformed pictures."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(Image.fromarray(tiny_picture(4)), "PNG", exif=exif)
    loaded, upright = load_transformed(content, [transform])[transform], transform_array(load_rgb(content), transform)
    assert loaded.shape == upright.shape
    assert np.abs(loaded.astype(int) - upright).mean() < 2


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("JPEG", "RGB"),
        ("PNG", "RGBA"),
        *(sweep(*each) for each in [("PNG", "RGB"), ("PNG", "L"), ("WEBP", "RGB")]),
    ],
)
def test_reduced_decoding_changes_little(name, mode):
    """Decoding at a reduced size changes pixels by less than two levels."""
    fields = Image.fromarray(tiny_picture(6)).convert(mode).resize((3300, 2500), Image.Resampling.BICUBIC)
    content = encoded(fields, name)
    for transform in (FitWithin(256), CenterCrop(224, 0.875), StretchToSquare(256)):
        exact = transform_array(load_rgb(content), transform)
        picture = load_transformed(content, [transform])[transform]
        assert picture.shape == exact.shape
        assert np.abs(picture.astype(int) - exact).mean() < 2


def test_transforms_are_independent():
    """A result does not depend on the other transforms of the call."""
    content = tiny_jpeg(5, width=640, height=480)
    together = load_transformed(content, TRANSFORMS)
    assert set(together) == set(TRANSFORMS)
    for transform in TRANSFORMS:
        assert np.array_equal(load_transformed(content, [transform])[transform], together[transform])


def test_results_are_read_only():
    """Results are read-only, and the source picture is not changed."""
    picture = Image.fromarray(tiny_picture(2))
    before = picture.tobytes()
    assert not any(apply_transform(picture, transform).flags.writeable for transform in TRANSFORMS)
    assert picture.tobytes() == before


def test_limits_and_damage_raise(monkeypatch):
    """Too many pixels and truncated files raise the errors of `load_rgb`."""
    with pytest.raises(BrokenMedia):
        load_transformed(tiny_jpeg()[:500], TRANSFORMS)
    monkeypatch.setattr("lightmeter.media.image.MAX_PIXELS", 100)
    with pytest.raises(MediaTooLarge):
        load_transformed(tiny_png(), TRANSFORMS)
