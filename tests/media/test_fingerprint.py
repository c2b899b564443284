"""Fingerprints say which pictures look the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

from lightmeter.media.fingerprint import FINGERPRINT_BYTES, fingerprint, looks_same
from lightmeter.media.image import encode_jpeg, load_rgb
from lightmeter.testing import blank_picture

MEDIA = Path(__file__).parents[2] / "data" / "media"
NAMES = ("astronaut", "chelsea", "coffee", "koala", "mountains", "rocket")


def photograph(name: str) -> Image.Image:
    """Open a sample photograph."""
    return Image.fromarray(load_rgb((MEDIA / f"{name}.jpg").read_bytes(), max_side=256))


def marks(picture: Image.Image) -> bytes:
    """Return the fingerprint of a picture that has one."""
    found = fingerprint(np.asarray(picture))
    assert found is not None
    assert len(found) == FINGERPRINT_BYTES
    return found


def compressed(picture: Image.Image) -> Image.Image:
    """Encode a picture as a poor JPEG and decode it."""
    return Image.fromarray(load_rgb(encode_jpeg(np.asarray(picture), quality=30)))


COPIES = {
    "JPEG": compressed,
    "half the size": lambda picture: picture.resize((picture.width // 2, picture.height // 2)),
    "crop": lambda picture: picture.crop((2, 3, picture.width - 3, picture.height - 2)),
    "darker": lambda picture: ImageEnhance.Brightness(picture).enhance(0.8),
    "more contrast": lambda picture: ImageEnhance.Contrast(picture).enhance(1.2),
    "less color": lambda picture: ImageEnhance.Color(picture).enhance(0.7),
}


@pytest.mark.parametrize("change", COPIES)
def test_changed_copies_look_the_same(change):
    """Copies of a photograph look the same as the photograph, in either order."""
    for name in NAMES:
        picture = photograph(name)
        first, second = marks(picture), marks(COPIES[change](picture))
        assert looks_same(first, second), name
        assert looks_same(second, first), name


def test_different_photographs_do_not_look_the_same():
    """No two sample photographs look the same, nor does the mirror image of one."""
    pictures = [marks(photograph(name)) for name in NAMES]
    assert not any(looks_same(one, other) for one in pictures for other in pictures if one is not other)
    mirrored = [marks(photograph(name).transpose(Image.Transpose.FLIP_LEFT_RIGHT)) for name in NAMES]
    assert not any(map(looks_same, pictures, mirrored))


def test_a_picture_in_other_colors_does_not_look_the_same():
    """The tags and colors of another hue differ, so the picture is another one."""
    picture = photograph("macaw")
    hsv = np.asarray(picture.convert("HSV")).copy()
    hsv[..., 0] += 85
    assert not looks_same(marks(picture), marks(Image.fromarray(hsv, "HSV").convert("RGB")))
    assert not looks_same(marks(picture), marks(picture.convert("L").convert("RGB")))


def test_logos_with_different_words_do_not_look_the_same():
    """In graphics, which are mostly flat, a small difference counts; a JPEG copy still looks the same."""

    def logo(word: str) -> Image.Image:
        badge = Image.new("RGB", (400, 400), "white")
        draw = ImageDraw.Draw(badge)
        draw.ellipse((60, 60, 340, 340), fill=(30, 60, 150))
        draw.text((95, 160), word, fill="white", font=ImageFont.load_default(70))
        return badge

    assert not looks_same(marks(logo("CLOUD")), marks(logo("HOUSE")))
    assert looks_same(marks(logo("CLOUD")), marks(compressed(logo("CLOUD"))))


def test_a_blank_picture_has_no_fingerprint():
    """Blank pictures, also with noise or a faint spot, have no fingerprint: their hashes are a matter of chance."""
    blank = blank_picture(200)
    noisy = (blank + np.random.default_rng(0).integers(-6, 7, blank.shape)).astype(np.uint8)
    spot = blank.copy()
    spot[20:22, 30:32] = 0
    assert [fingerprint(one) for one in (blank, noisy, spot)] == [None, None, None]
