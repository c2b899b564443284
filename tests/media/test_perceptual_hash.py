"""Perceptual hashes of pictures."""

import numpy as np

from lightmeter.media.image import encode_jpeg, load_rgb
from lightmeter.media.perceptual_hash import perceptual_hash
from lightmeter.testing import tiny_picture


def distance(first: int, second: int) -> int:
    """Return the number of bits that differ."""
    return (first ^ second).bit_count()


def test_a_picture_and_its_copies_have_near_hashes():
    """Another encoding, size and brightness change few bits; the mirrored picture has a far hash."""
    picture = np.asarray(tiny_picture())
    same = load_rgb(encode_jpeg(picture, quality=40))
    brighter = np.clip(picture.astype(np.int16) + 10, 0, 255).astype(np.uint8)
    hashes = [perceptual_hash(one) for one in (picture, same, brighter, picture[::-1].copy())]
    assert all(0 <= each < 2**64 for each in hashes)
    assert distance(hashes[0], hashes[1]) <= 6
    assert distance(hashes[0], hashes[2]) <= 6
    assert distance(hashes[0], hashes[3]) > 10
