"""Finds rows of a plan whose images look the same as an earlier row's, for `--duplicates near`.

A perceptual hash within `RADIUS` bits makes an earlier image a candidate; the fingerprints of the two then decide. The
hashes of earlier images are in memory (`media.hash_index` states how much), their fingerprints in a temporary file.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from tempfile import TemporaryFile
from typing import Final

import numpy as np

from lightmeter.journal.commands.plan_rows import NearDuplicate, PlannedRow
from lightmeter.media.fingerprint import FINGERPRINT_BYTES, looks_same
from lightmeter.media.hash_index import HashIndex

RADIUS: Final = 12
"""Most bits in which the hashes of two images that look the same may differ."""

MAX_COMPARED: Final = 32
"""Most earlier images with a similar hash that a row is compared with, the nearest first: bounds the work of a row."""


class NearDuplicates(AbstractContextManager["NearDuplicates"]):
    """Index of the images that a plan pays for, to find an earlier image that looks the same as that of a new row."""

    def __init__(self) -> None:
        self._index = HashIndex(RADIUS)
        self._fingerprints = TemporaryFile(prefix="lightmeter-")  # noqa: SIM115 (__exit__ closes it)
        self._last_seq = -1

    def __exit__(self, *error: object) -> None:
        self._fingerprints.close()

    def find_or_add(self, row: PlannedRow) -> NearDuplicate | None:
        """Return the earlier row with an image that looks the same; without one, add `row` and return None.

        Videos, images that were not decoded, and images that are nearly blank are neither found nor added.
        """
        if row.kind != "image" or row.perceptual_hash is None or row.fingerprint is None:
            return None
        found = self._find(row.seq, row.perceptual_hash, row.fingerprint)
        # A write that failed because the disk was full is done again, with rows that are known already.
        if found is None and row.seq > self._last_seq:
            self._fingerprints.seek(len(self._index) * (FINGERPRINT_BYTES + _SEQ.itemsize))
            self._fingerprints.write(np.array(row.seq, _SEQ).tobytes() + row.fingerprint)
            self._index.add(row.perceptual_hash)
            self._last_seq = row.seq
        return found

    def _find(self, seq: int, bits: int, fingerprint: bytes) -> NearDuplicate | None:
        numbers, distances = self._index.search(bits)
        for place in np.argsort(distances, kind="stable")[:MAX_COMPARED]:
            self._fingerprints.seek(int(numbers[place]) * (FINGERPRINT_BYTES + _SEQ.itemsize))
            earlier = self._fingerprints.read(FINGERPRINT_BYTES + _SEQ.itemsize)
            earlier_seq = int(np.frombuffer(earlier, _SEQ, 1)[0])
            if earlier_seq < seq and looks_same(earlier[_SEQ.itemsize :], fingerprint):
                return NearDuplicate(earlier_seq, int(distances[place]))
        return None


_SEQ: Final = np.dtype("<i8")
