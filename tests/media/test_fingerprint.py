"""The same file, and the same picture."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.media.fingerprint import hamming, perceptual_hash, sha256_hex
from lightmeter.media.image import encode_jpeg, load_rgb
from lightmeter.testing import tiny_picture


def test_bytes_are_known_by_sha256():
    """The figure that `sha256sum` prints."""
    assert sha256_hex(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_picture_is_known_again_after_scaling_and_encoding():
    """Half the size and poor JPEG leave the look, and so the hash, nearly as it was."""
    large = tiny_picture(1, width=640, height=480)
    again = load_rgb(encode_jpeg(np.ascontiguousarray(large[::2, ::2]), quality=40))
    assert hamming(perceptual_hash(large), perceptual_hash(again)) <= 8


def test_different_pictures_are_told_apart():
    """Pictures of other seeds are far away from each other."""
    hashes = [perceptual_hash(tiny_picture(seed)) for seed in range(6)]
    assert min(hamming(a, b) for a in hashes for b in hashes if a is not b) > 8


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_distance_is_a_distance(a, b):
    """Zero only to itself, the same both ways, never above 64."""
    assert hamming(a, a) == 0
    assert hamming(a, b) == hamming(b, a) <= 64
    assert (hamming(a, b) == 0) == (a == b)
