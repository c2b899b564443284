"""The index of hashes finds exactly what a comparison with each hash finds."""

from __future__ import annotations

import numpy as np
import pytest

from lightmeter.media import hash_index
from lightmeter.media.hash_index import HashIndex


@pytest.mark.parametrize("radius", [0, 3, 5, 8, 12])
def test_a_search_finds_exactly_the_hashes_within_the_radius(monkeypatch, radius):
    """Each search gives the same numbers and distances as brute force, for random and for crowded hashes."""
    monkeypatch.setattr(hash_index, "TAIL_HASHES", 64)
    rng = np.random.default_rng(radius)
    centers = rng.integers(0, 2**64, 20, dtype=np.uint64)
    hashes = centers[rng.integers(0, len(centers), 700)].copy()
    for _ in range(radius):
        hashes ^= np.uint64(1) << rng.integers(0, 64, len(hashes), dtype=np.uint64)
    index = HashIndex(radius)
    for count, bits in enumerate(hashes.tolist()):
        if count % 23 == 0:
            distances = np.bitwise_count(hashes[:count] ^ np.uint64(bits))
            numbers, found = index.search(bits)
            assert numbers.tolist() == np.flatnonzero(distances <= radius).tolist()
            assert found.tolist() == distances[distances <= radius].tolist()
        index.add(bits)
    assert len(index) == 700


def test_an_empty_index_finds_nothing():
    """A search in an empty index has no result."""
    numbers, distances = HashIndex(12).search(2**64 - 1)
    assert numbers.size == distances.size == 0
