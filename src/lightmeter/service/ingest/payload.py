"""Undecoded content of an asset (an image or video), in memory if it is small, otherwise in a temporary file.

Writing, reading and removing a file for each image took longer than its HTTP request. So only large content, and videos
for the decoder process, are written to disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, Self

from lightmeter.errors import MediaTooLarge
from lightmeter.media.media_info import SNIFF_BYTES
from lightmeter.wire.constants import FILE_TOO_LARGE, MAX_FILE_BYTES

IN_MEMORY_BYTES: Final = 1024 * 1024
"""Maximum size of fetched content that stays in memory. Hashing it takes less than a millisecond."""

PREFIX: Final = "lightmeter-asset-"


@dataclass(frozen=True, slots=True, eq=False)
class AssetPayload:
    """Undecoded content of an asset.

    Attributes:
        source: The content, or a file that contains it and must not change.
        size_bytes: Size of the content.
        head: At least the first `SNIFF_BYTES` of the content, or all of it.
        known_digest: SHA-256 of the content; None: not computed yet.
    """

    source: bytes | Path
    size_bytes: int
    head: bytes
    known_digest: bytes | None = None

    @classmethod
    def from_bytes(cls, content: bytes, digest: bytes | None = None) -> Self:
        """Return the payload of an uploaded file, with its SHA-256 if the caller knows it."""
        return cls(content, len(content), content[:SNIFF_BYTES], digest)

    def content(self) -> bytes:
        """Return the whole content; this may read a file.

        Raises:
            MediaTooLarge: the content is larger than the maximum for images.
        """
        if self.size_bytes > MAX_FILE_BYTES:
            raise MediaTooLarge(FILE_TOO_LARGE)
        return self.source if isinstance(self.source, bytes) else self.source.read_bytes()

    async def digest(self) -> bytes:
        """Return the SHA-256 of the content. Large content is hashed in a thread."""
        if self.known_digest is not None:
            return self.known_digest
        if isinstance(self.source, bytes) and self.size_bytes <= IN_MEMORY_BYTES:
            return sha256(self.source).digest()  # faster than switching to a thread and back
        return await asyncio.to_thread(self._digest)

    def _digest(self) -> bytes:
        if isinstance(self.source, bytes):
            return sha256(self.source).digest()
        with self.source.open("rb") as file:
            return file_digest(file, "sha256").digest()

    @asynccontextmanager
    async def as_file(self) -> AsyncIterator[Path]:
        """Yield the path of a file with the content, which exists at least during the block."""
        if isinstance(self.source, Path):
            yield self.source
            return
        with TemporaryDirectory(prefix=PREFIX) as folder:
            path = Path(folder) / "asset"
            await asyncio.to_thread(path.write_bytes, self.source)
            yield path


class PayloadWriter:
    """Collects fetched content, which arrives in chunks of bytes, in memory or in a temporary file.

    The end of the `with` block removes the file.

    Attributes:
        head: The first bytes, up to `SNIFF_BYTES`.
        size_bytes: Number of bytes so far.
    """

    def __init__(self) -> None:
        self.head = b""
        self.size_bytes = 0
        self._buffer = bytearray()  # a list of one-byte chunks would take forty times the memory
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, chunk: bytes) -> None:
        """Append a chunk; it may be buffered until `payload` is called."""
        self.size_bytes += len(chunk)
        if len(self.head) < SNIFF_BYTES:
            self.head += chunk[: SNIFF_BYTES - len(self.head)]
        if self._file is None and self.size_bytes > IN_MEMORY_BYTES:
            self._path = Path(self._stack.enter_context(TemporaryDirectory(prefix=PREFIX))) / "asset"
            self._file = self._stack.enter_context(self._path.open("wb"))
            self._file.write(self._buffer)
            self._buffer.clear()
        if self._file is None:
            self._buffer += chunk
        else:
            self._file.write(chunk)

    def payload(self) -> AssetPayload:
        """Return the payload with all chunks; call it after the last chunk."""
        if self._file is None or self._path is None:
            return AssetPayload(bytes(self._buffer), self.size_bytes, self.head)
        self._file.close()
        return AssetPayload(self._path, self.size_bytes, self.head)
