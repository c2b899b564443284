"""Undecoded content of an asset (an image or video), in memory if it is small, otherwise in a temporary file.

To write, read and remove a file for each image would take longer than its HTTP request. So content is written to disk
only if it is large, or if it is a video that a decoder process must read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO, Final, Self

from lightmeter.errors import LightmeterError, MediaTooLarge
from lightmeter.media.media_info import SNIFF_BYTES
from lightmeter.tempdirs import LockedTempDir
from lightmeter.wire.constants import FILE_TOO_LARGE, MAX_FILE_BYTES

IN_MEMORY_BYTES: Final = 1024 * 1024
"""Maximum size of fetched content that is kept in memory; larger content is written to a temporary file.

Up to this size, hashing takes less than a millisecond, and is done on the event loop.
"""


class TempFolderError(LightmeterError):
    """The service cannot write to its temporary folder, for example because the disk is full.

    The cause is not in the request: the client may send it again later.
    """


@contextmanager
def _temp_folder_errors() -> Iterator[None]:
    """Turn each OSError of the `with` block into a TempFolderError. The block writes to the temporary folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise TempFolderError(f"the service cannot write to its temporary folder ({reason})") from error


@dataclass(frozen=True, slots=True, eq=False)
class AssetContent:
    """Undecoded content of an image or video.

    Attributes:
        source: The content itself, or the path of a file that contains it. The file must not change.
        size_bytes: Size of the content.
        head: The start of the content: at least `SNIFF_BYTES` bytes, or the whole content if it is shorter.
        known_digest: SHA-256 of the content. None: it was not computed yet.
    """

    source: bytes | Path
    size_bytes: int
    head: bytes
    known_digest: bytes | None = None

    @classmethod
    def from_bytes(cls, content: bytes, digest: bytes | None = None) -> Self:
        """Return an object that has the bytes `content`, for example an uploaded file.

        `digest` is the SHA-256 of the content. If it is None, the SHA-256 is computed when it is needed.
        """
        return cls(content, len(content), content[:SNIFF_BYTES], digest)

    def read(self) -> bytes:
        """Return the whole content of an image, from memory or from its file.

        Raises:
            MediaTooLarge: the content is larger than `MAX_FILE_BYTES`, the maximum for images.
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
        """Yield the path of a file that contains the content. The file exists at least until the `with` block ends.

        Raises:
            TempFolderError: the file cannot be written.
        """
        if isinstance(self.source, Path):
            yield self.source
            return
        with ExitStack() as stack:
            with _temp_folder_errors():
                path = stack.enter_context(LockedTempDir()).path / "asset"
                await asyncio.to_thread(path.write_bytes, self.source)
            yield path


class AssetContentWriter:
    """Collects fetched content, which arrives in chunks of bytes.

    The content stays in memory up to `IN_MEMORY_BYTES`; larger content is written to a temporary file. The writer is a
    context manager: the end of the `with` block removes the temporary file.

    Attributes:
        head: The first bytes of the content, at most `SNIFF_BYTES`.
        size_bytes: Number of bytes that were added so far.
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
        with suppress(OSError):  # a full disk: `add` or `content` has reported it
            self._stack.close()

    def add(self, chunk: bytes) -> None:
        """Append a chunk of bytes to the content.

        The last bytes may be written to the file only when `content` is called.

        Raises:
            TempFolderError: the file cannot be written.
        """
        self.size_bytes += len(chunk)
        if len(self.head) < SNIFF_BYTES:
            self.head += chunk[: SNIFF_BYTES - len(self.head)]
        if self._file is None and self.size_bytes > IN_MEMORY_BYTES:
            with _temp_folder_errors():
                self._path = self._stack.enter_context(LockedTempDir()).path / "asset"
                self._file = self._stack.enter_context(self._path.open("wb"))
                self._file.write(self._buffer)
            self._buffer.clear()
        if self._file is None:
            self._buffer += chunk
        else:
            with _temp_folder_errors():
                self._file.write(chunk)

    def content(self) -> AssetContent:
        """Return all content that was added. Call this method after the last `add`.

        Raises:
            TempFolderError: the file cannot be written.
        """
        if self._file is None or self._path is None:
            return AssetContent(bytes(self._buffer), self.size_bytes, self.head)
        with _temp_folder_errors():
            self._file.close()
        return AssetContent(self._path, self.size_bytes, self.head)
