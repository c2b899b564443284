"""Index of 64-bit hashes. It finds all hashes that differ from a given one in at most a fixed number of bits.

Source: multi-index hashing, M. Norouzi et al., "Fast Search in Hamming Space with Multi-Index Hashing", CVPR 2012. A
hash consists of four bands of 16 bits. If two hashes differ in at most r bits, then by the pigeonhole principle there
is a band in which they differ in at most r // 4 bits. So a search looks only at hashes of which one band equals or
nearly equals the same band of the given hash. The result is exact.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

_BANDS: Final = 4
_BAND_BITS: Final = 16
_BAND_VALUES: Final = 1 << _BAND_BITS

TAIL_HASHES: Final = 32_768
"""Number of hashes that are collected before they are sorted into a block.

A search compares hashes that are not in a block one by one. For so few hashes, this is quicker than a search in bands.
"""

BYTES_PER_HASH: Final = 24
"""Memory of one hash in bytes: 8 for the hash, and 4 in each of the four bands for its place in the sorted order.

While an index grows, it needs up to twice as much for a moment.
"""


class HashIndex:
    """Index of 64-bit hashes in memory that finds the hashes similar to a given one.

    The index numbers the hashes from 0 in the order in which they are added. It holds at most 2³² hashes.

    Args:
        radius: Greatest number of bits in which a found hash may differ from the given one.
    """

    def __init__(self, radius: int) -> None:
        self._radius = radius
        self._masks = _band_masks(radius)
        self._hashes = np.empty(TAIL_HASHES, dtype=np.uint64)
        self._blocks: list[_Block] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, bits: int) -> None:
        """Add the hash `bits`; it gets the next number (the first hash has number 0)."""
        if self._count == len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.empty_like(self._hashes)])
        self._hashes[self._count] = bits
        self._count += 1
        if self._count % TAIL_HASHES == 0:
            self._add_block(self._count - TAIL_HASHES)

    def _add_block(self, start: int) -> None:
        """Sort the hashes from number `start` to the newest into a new `_Block`.

        The preceding blocks that are not longer than the new one become part of it, so that there are few blocks.
        """
        while self._blocks and self._blocks[-1].length <= self._count - start:
            start = self._blocks.pop().start
        self._blocks.append(_Block(self._hashes[start : self._count], start))

    def search(self, bits: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Find all hashes that differ from `bits` in at most `radius` bits.

        Return their numbers, ascending, and for each the number of bits in which it differs (its Hamming distance).
        """
        value = np.uint64(bits)
        tail = self._count - self._count % TAIL_HASHES
        candidates = [block.candidates(value, self._masks) for block in self._blocks]
        candidates.append(np.arange(tail, self._count, dtype=np.uint32))
        numbers = np.concatenate(candidates)
        distances = np.bitwise_count(self._hashes[numbers] ^ value)
        is_near = distances <= self._radius
        # A hash that is near in two bands is found twice.
        near, first = np.unique(numbers[is_near], return_index=True)
        return near, distances[is_near][first]


class _Block:
    """Sorted index of consecutive hashes of a `HashIndex`.

    For each of the four 16-bit bands, it holds the numbers of these hashes, sorted by the value of the band. The number
    of a hash is its number in the `HashIndex`.

    Args:
        hashes: The hashes.
        start: The number in the `HashIndex` of the first of `hashes`.
    """

    def __init__(self, hashes: NDArray[np.uint64], start: int) -> None:
        self.start = start
        self.length = len(hashes)
        self._orders = []
        self._offsets = []
        for values in _band_values(hashes):
            order = np.argsort(values, kind="stable").astype(np.uint32)
            counts = np.bincount(values, minlength=_BAND_VALUES)
            self._orders.append(order + np.uint32(start))
            self._offsets.append(np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32))

    def candidates(self, value: np.uint64, masks: list[NDArray[np.uint16]]) -> NDArray[np.uint32]:
        """Return the numbers of this block's hashes that nearly equal `value` in at least one 16-bit band.

        The numbers are those in the whole `HashIndex`. A number occurs once for each nearly equal band.

        Args:
            value: The hash to search for.
            masks: For each of the four bands, the differences (XOR) that count as nearly equal, from `_band_masks`.
        """
        found = []
        for order, offsets, band, band_masks in zip(
            self._orders, self._offsets, _band_values(np.atleast_1d(value)), masks, strict=True
        ):
            near = (band_masks ^ band).astype(np.intp)
            starts = offsets[near].astype(np.intp)
            lengths = offsets[near + 1] - starts
            shifts = starts - (np.cumsum(lengths) - lengths)
            found.append(order[np.repeat(shifts, lengths) + np.arange(lengths.sum(), dtype=np.intp)])
        return np.concatenate(found)


def _band_values(hashes: NDArray[np.uint64]) -> list[NDArray[np.uint16]]:
    shifts = np.arange(_BANDS, dtype=np.uint64) * np.uint64(_BAND_BITS)
    return [(hashes >> shift).astype(np.uint16) for shift in shifts]


def _band_masks(radius: int) -> list[NDArray[np.uint16]]:
    """Return, for each of a hash's four 16-bit bands, the bit patterns to flip (XOR) in order to find near hashes.

    Near hashes differ in at most `radius` bits. Let radius = 4 q + m. Then two near hashes differ in at most q bits of
    one of the first m + 1 bands, or in at most q - 1 bits of one of the other bands. Otherwise they would differ in at
    least (m + 1) (q + 1) + (3 - m) q = radius + 1 bits.
    """
    quotient, remainder = divmod(radius, _BANDS)
    limits = [quotient if band <= remainder else quotient - 1 for band in range(_BANDS)]
    return [
        np.array(
            [sum(1 << bit for bit in bits) for size in range(limit + 1) for bits in combinations(range(16), size)],
            dtype=np.uint16,
        )
        for limit in limits
    ]
