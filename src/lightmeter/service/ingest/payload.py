"""An asset as it came, before it is developed: a small one in memory, a large one in a file.

Most pictures are some hundred kilobytes. Making a folder and a file for each of them, reading it again and removing
both took longer than the HTTP around it; so only what is large goes to disk, and what a decoder in another process
has to read.
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
from lightmeter.models.vocabulary import FILE_TOO_LARGE, MAX_FILE_BYTES

__all__ = ["IN_MEMORY_BYTES", "AssetPayload", "PayloadWriter"]

IN_MEMORY_BYTES: Final = 1024 * 1024
"""Largest asset that is kept in memory while it is fetched, and hashed in passing: that takes less than a millisecond.

Times the assets in hand, that is what memory it costs at most."""

PREFIX: Final = "lightmeter-asset-"


@dataclass(frozen=True, slots=True, eq=False)
class AssetPayload:
    """One asset, undeveloped.

    Attributes:
        held: Its content, or the file it lies in; the file must stay as it is.
        size_bytes: Of the content.
        head: At least its first `SNIFF_BYTES`, or all of it.
        known_digest: SHA-256 of the content, if somebody has computed it already.
    """

    held: bytes | Path
    size_bytes: int
    head: bytes
    known_digest: bytes | None = None

    @classmethod
    def of(cls, content: bytes, digest: bytes | None = None) -> Self:
        """What was uploaded, with its SHA-256 if that is known."""
        return cls(content, len(content), content[:SNIFF_BYTES], digest)

    def content(self) -> bytes:
        """All of it; may read a file.

        Raises:
            MediaTooLarge: more than an image may have.
        """
        if self.size_bytes > MAX_FILE_BYTES:
            raise MediaTooLarge(FILE_TOO_LARGE)
        return self.held if isinstance(self.held, bytes) else self.held.read_bytes()

    async def digest(self) -> bytes:
        """SHA-256 of the content; beside the event loop if that takes a while."""
        if self.known_digest is not None:
            return self.known_digest
        if isinstance(self.held, bytes) and self.size_bytes <= IN_MEMORY_BYTES:
            return sha256(self.held).digest()  # quicker than changing threads twice
        return await asyncio.to_thread(self._digest)

    def _digest(self) -> bytes:
        if isinstance(self.held, bytes):
            return sha256(self.held).digest()
        with self.held.open("rb") as file:
            return file_digest(file, "sha256").digest()

    @asynccontextmanager
    async def as_file(self) -> AsyncIterator[Path]:
        """A file with the content, at least for as long as the block lasts."""
        if isinstance(self.held, Path):
            yield self.held
            return
        with TemporaryDirectory(prefix=PREFIX) as folder:
            path = Path(folder) / "asset"
            await asyncio.to_thread(path.write_bytes, self.held)
            yield path


class PayloadWriter:
    """Takes an asset up piece by piece; the file, if it comes to one, is removed at the end of the `with` block."""

    def __init__(self) -> None:
        self.head = b""
        self.size_bytes = 0
        self._kept = bytearray()  # no list: a million pieces of one byte would take forty times that
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, piece: bytes) -> None:
        """The next bytes; `head` and `size_bytes` count them, and only `film` says that they are written."""
        self.size_bytes += len(piece)
        if len(self.head) < SNIFF_BYTES:
            self.head += piece[: SNIFF_BYTES - len(self.head)]
        if self._file is None and self.size_bytes > IN_MEMORY_BYTES:
            self._path = Path(self._stack.enter_context(TemporaryDirectory(prefix=PREFIX))) / "asset"
            self._file = self._stack.enter_context(self._path.open("wb"))
            self._file.write(self._kept)
            self._kept.clear()
        if self._file is None:
            self._kept += piece
        else:
            self._file.write(piece)

    def film(self) -> AssetPayload:
        """What was taken up, when it is all there."""
        if self._file is None or self._path is None:
            return AssetPayload(bytes(self._kept), self.size_bytes, self.head)
        self._file.close()
        return AssetPayload(self._path, self.size_bytes, self.head)
