"""The back end `palette`: dominant colors, deterministic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lightmeter.media.oklab import LMS_TO_OKLAB, RGB_TO_LMS, srgb_to_oklab
from lightmeter.service.backends.local.palette import MAX_COLORS, dominant_colors
from tests.sweeps import sweep

CHANNEL = st.integers(0, 255)


def flat(*colors_and_widths, height=40):
    """Vertical bands, each given as (red, green, blue) and a width."""
    bands = [
        np.full((height, width, 3), color, dtype=np.uint8)
        for color, width in zip(colors_and_widths[::2], colors_and_widths[1::2], strict=True)
    ]
    return np.concatenate(bands, axis=1)


@given(st.tuples(CHANNEL, CHANNEL, CHANNEL))
def test_flat_color_is_found_exactly(color):
    """A picture of one color has this color with a fraction of 1."""
    (found,) = dominant_colors(flat(color, 30))
    assert (found.red, found.green, found.blue) == color
    assert found.hex == "#{:02x}{:02x}{:02x}".format(*color)
    assert (found.score, found.pixel_fraction) == (1.0, 1.0)


def oklab_to_srgb(lab):
    """Invert the conversion, by the same source's formulas."""
    linear = np.clip((lab @ np.linalg.inv(np.array(LMS_TO_OKLAB)).T) ** 3 @ np.linalg.inv(np.array(RGB_TO_LMS)).T, 0, 1)
    srgb = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.clip(srgb, 0, 1)


@given(arrays(np.float64, (4, 3), elements=st.floats(0, 1)))
def test_oklab_round_trip(srgb):
    """Converting to Oklab and back loses nothing that eight bits could show."""
    assert np.allclose(oklab_to_srgb(srgb_to_oklab(srgb)), srgb, atol=1e-4)


def test_oklab_knows_its_published_values():
    """White is (1, 0, 0), and red is where Ottosson's table puts it."""
    lab = srgb_to_oklab(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]))
    assert np.allclose(lab, [[1, 0, 0], [0.62796, 0.22486, 0.12585]], atol=1e-4)


def test_shares_follow_area_and_vivid_colors_come_first():
    """The share is the area; the score lifts a vivid patch above a larger grey one."""
    found = dominant_colors(flat((128, 128, 128), 60, (255, 0, 0), 40))
    assert [color.hex for color in found] == ["#ff0000", "#808080"]
    assert [color.pixel_fraction for color in found] == [pytest.approx(0.4), pytest.approx(0.6)]


def test_near_colors_are_one():
    """Two nearly equal colors are merged into one."""
    (found,) = dominant_colors(flat((200, 30, 30), 50, (204, 32, 32), 50))
    assert (found.red, found.green, found.blue) in {(200, 30, 30), (204, 32, 32)}
    assert found.pixel_fraction == 1.0


PHOTOS = [
    "astronaut.jpg",
    "chelsea.jpg",
    *map(sweep, ("coffee.jpg", "rocket.jpg")),
]


@pytest.mark.parametrize("name", PHOTOS)
def test_each_color_occurs(photo, name):
    """Each answered color occurs in the picture."""
    picture = photo(name)
    there = {tuple(pixel) for pixel in picture.reshape(-1, 3).tolist()}
    assert all((color.red, color.green, color.blue) in there for color in dominant_colors(picture))


@pytest.mark.parametrize("name", PHOTOS)
def test_a_share_is_made_of_alike_pixels(photo, name):
    """The pixels that a color covers are within an Oklab distance of 0.07."""
    picture = photo(name)
    pixels = srgb_to_oklab(picture.reshape(-1, 3) / 255.0)
    for color in dominant_colors(picture):
        lab = srgb_to_oklab(np.array([[color.red, color.green, color.blue]]) / 255.0)
        assert (np.linalg.norm(pixels - lab, axis=1) < 0.07).mean() >= color.pixel_fraction - 0.02


def test_unlike_colors_stay_apart():
    """Steps of a gradient, each near to the next, do not all become one colour."""
    ramp = np.repeat(np.linspace(0, 255, 256).astype(np.uint8)[None, :, None], 3, axis=2).repeat(50, axis=0)
    found = dominant_colors(ramp)
    assert len(found) >= 5
    assert max(color.pixel_fraction for color in found) < 0.3


@pytest.mark.parametrize("period", [2, 8, 16, 32])
def test_stripes_do_not_alias(period):
    """Stripes finer than the sampling grid keep both of their colours, half each."""
    stripes = np.zeros((2048, 2048, 3), dtype=np.uint8)
    stripes[:, np.arange(2048) % period < period // 2] = 255
    found = dominant_colors(stripes)
    assert {color.hex for color in found} == {"#000000", "#ffffff"}
    assert all(color.pixel_fraction == pytest.approx(0.5, abs=0.06) for color in found)


@settings(max_examples=25)
@given(arrays(np.uint8, st.tuples(st.integers(1, 24), st.integers(1, 24), st.just(3))))
def test_any_picture_has_a_palette(picture):
    """Any picture gives one to eight colors by falling score, with sums of at most 1."""
    found = dominant_colors(picture)
    assert 1 <= len(found) <= MAX_COLORS
    assert len({color.hex for color in found}) == len(found)
    # In ten-thousandths, which both are rounded to: the sum of the floats may be 1.0000000000000002.
    assert sum(round(color.score * 10_000) for color in found) <= 10_000
    assert sum(round(color.pixel_fraction * 10_000) for color in found) <= 10_000
    assert [color.score for color in found] == sorted((color.score for color in found), reverse=True)
