"""Finds rows of a plan whose image looks the same as the image of an earlier row, for `--duplicates near`.

Two images are compared only if their perceptual hashes differ in at most `RADIUS` bits. Their fingerprints then decide
whether they look the same. The hashes of earlier images are in memory (`media.hash_index` states how many bytes). The
fingerprints are in a temporary file.
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
"""Two images are compared only if their perceptual hashes differ in at most this number of bits."""

MAX_COMPARED: Final = 32
"""The image of a row is compared with at most this number of earlier images, which bounds the work for each row.

These are the images with the most similar hashes.
"""


class NearDuplicates(AbstractContextManager["NearDuplicates"]):
    """Index of the images that a plan pays for; it finds the one that looks the same as the image of a new row."""

    def __init__(self) -> None:
        self._index = HashIndex(RADIUS)
        self._fingerprints = TemporaryFile(prefix="lightmeter-")  # noqa: SIM115 (__exit__ closes it)
        self._last_seq = -1

    def __exit__(self, *error: object) -> None:
        self._fingerprints.close()

    def find_or_add(self, row: PlannedRow) -> NearDuplicate | None:
        """Return the earlier row whose image looks the same as that of `row`.

        If there is none, add `row` to the index and return None. If `row` is a video, or if its image was not decoded
        or is nearly blank, only return None.
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
