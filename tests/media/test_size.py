"""Reading a picture's size from the first bytes of its file."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightmeter.media.image import read_image_info, read_size

FORMS = [("JPEG", {}), ("PNG", {}), ("GIF", {}), ("BMP", {}), ("WEBP", {}), ("WEBP", {"lossless": True})]


def encoded(form, size, **more):
    """Return a picture of noise, which does not compress."""
    noise = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = BytesIO()
    Image.fromarray(noise).save(out, form, **more)
    return out.getvalue()


def exif(orientation):
    tags = Image.Exif()
    tags[274] = orientation
    return tags.tobytes()


@pytest.mark.parametrize(("form", "more"), FORMS, ids=str)
def test_the_beginning_tells_the_size(form, more):
    """A few KiB of a large file are enough for every format with its size in the header."""
    whole = encoded(form, (300, 200), **more)
    assert len(whole) > 20_000
    assert read_size(whole[:4096]) == (300, 200)
    assert read_size(whole) == (300, 200)


@pytest.mark.parametrize(("form", "sideways"), [("JPEG", 6), ("PNG", 8)])
def test_the_size_is_the_one_that_is_shown(form, sideways):
    """EXIF orientation is applied, as when the whole file is read."""
    whole = encoded(form, (300, 200), exif=exif(sideways))
    facts = read_image_info(whole)
    assert read_size(whole[:4096]) == (facts.width, facts.height) == (200, 300)


def test_a_size_is_never_guessed():
    """For WebP with EXIF data, which are at the end of the file, the size is unknown."""
    whole = encoded("WEBP", (300, 200), exif=exif(6))
    assert read_size(whole[:4096]) is None
    assert read_size(whole) == (200, 300)


@given(st.binary(max_size=64) | st.binary(max_size=40).map(lambda tail: b"RIFF\0\0\0\0WEBP" + tail))
def test_no_bytes_make_it_raise(content):
    """Any first bytes give two positive numbers or None."""
    found = read_size(content)
    assert found is None or min(found) > 0
