"""`CompressedTexts`: a list that keeps millions of texts, such as URLs, in little memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BLOCK_TEXTS: Final = 512
"""Number of texts in a block. To read one text, its whole block is decompressed, which takes about 10 microseconds."""

CODEC: Final = "lz4"


class CompressedTexts:
    """A list of texts, compressed in blocks.

    The URLs of one server, for example, take a fifth of the memory that they take uncompressed.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: list[tuple[bytes, NDArray[np.int32]]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, texts: pa.Array[Any]) -> None:
        """Append the texts of an Arrow array. A null becomes an empty text."""
        offsets = np.frombuffer(memoryview(texts.buffers()[1] or b"\0\0\0\0"), np.int32)[texts.offset :][
            : len(texts) + 1
        ]
        content = memoryview(texts.buffers()[2] or b"")
        for first in range(0, len(texts), BLOCK_TEXTS):
            ends = offsets[first : first + BLOCK_TEXTS + 1]
            compressed = pa.compress(bytes(content[ends[0] : ends[-1]]), codec=CODEC, asbytes=True)
            self._starts.append(self._count)
            self._blocks.append((compressed, ends - ends[0]))
            self._count += len(ends) - 1

    def __getitem__(self, index: int) -> str:
        block = bisect_right(self._starts, index) - 1
        compressed, ends = self._blocks[block]
        first = index - self._starts[block]
        content = pa.decompress(compressed, decompressed_size=int(ends[-1]), codec=CODEC, asbytes=True)
        return str(content[ends[first] : ends[first + 1]], "utf-8")
