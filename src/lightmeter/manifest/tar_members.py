"""Names media files inside tars for the journal, and reads their bytes.

The field `path` of an item in a tar is `tar:OFFSET:ARCHIVE#/MEMBER`, for example
`tar:1024:/data/shard-000.tar#/000123.jpg`. ARCHIVE is the tar: an absolute path, or a URI without credentials. OFFSET
is the position of the member's header in the tar, so that a member is read without those before it. The paths of items
that are not in a tar begin with `/`.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from errno import EIO
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self
from urllib.parse import quote, unquote

from lightmeter.errors import LightmeterError
from lightmeter.remote_files import open_file_system
from lightmeter.tempdirs import LockedTempDir

MAX_HEADER_BYTES: Final = 1024 * 1024
"""Longest extended header of a member, in bytes, that is read; a longer one counts as damage of the tar."""

TAR_ERRORS: Final = (tarfile.TarError, OSError, ValueError, ArithmeticError, LookupError, RecursionError)
"""All exceptions that `tarfile` raises for damaged tars, and those that Arrow raises for remote files."""

_READ_AHEAD_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_REFERENCE: Final = re.compile(r"tar:(\d+):([^#]+)#/(.+)", re.DOTALL)


class HeaderReader(io.BufferedReader):
    """Buffered stream of a tar that refuses to read very long headers, because they would fill the memory."""

    def read(self, size: int | None = -1) -> bytes:
        """Return the next `size` bytes.

        Raises:
            tarfile.ReadError: `size` is more than `MAX_HEADER_BYTES`, negative or None.
        """
        if size is None or not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError("a header is too long")
        return super().read(size)


@contextmanager
def open_archive(archive: str) -> Iterator[tuple[HeaderReader, int]]:
    """Open a tar, given as a local path or as a URI; yield the stream and its size in bytes.

    Raises:
        OSError: the tar is missing or cannot be read.
    """
    try:
        if "://" in archive:
            filesystem, path = open_file_system(archive)
            raw: Any = filesystem.open_input_file(path)
        else:
            raw = Path(archive).open("rb", buffering=0)  # noqa: SIM115 (closed below)
    except (ValueError, LightmeterError) as error:
        raise OSError(EIO, str(error)) from error
    with HeaderReader(raw, _READ_AHEAD_BYTES) as stream:
        size_bytes = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        yield stream, size_bytes


@dataclass(frozen=True, slots=True)
class TarMember:
    """One file in a tar.

    Attributes:
        archive: Absolute path or URI of the tar.
        offset: Position of the member's header in the tar, in bytes.
        name: Name of the member in the tar.
    """

    archive: str
    offset: int
    name: str

    @classmethod
    def from_path(cls, path: str) -> Self | None:
        """Return the member of a tar that the field `path` of an item names; None if it names an ordinary file."""
        found = _REFERENCE.fullmatch(path)
        return cls(unquote(found[2]), int(found[1]), found[3]) if found else None

    @property
    def path(self) -> str:
        """The member as text, for the field `path` of an item: `tar:OFFSET:ARCHIVE#/MEMBER`; `from_path` reads it."""
        return f"tar:{self.offset}:{quote(self.archive, safe='/:?=&,+@!$()~*')}#/{self.name}"

    def copy_to(self, target: Path) -> None:
        """Write the member's content to the local file `target`, which must not exist yet.

        Raises:
            OSError: the tar cannot be read, is cut off, or no longer has the member at `offset`; or `target` exists.
        """
        with target.open("xb") as file:
            for chunk in self.read():
                file.write(chunk)

    def read(self) -> Iterator[bytes]:
        """Yield the member's content in chunks of bytes.

        Raises:
            OSError: the tar cannot be read, is cut off, or no longer has the member at `offset`.
        """
        try:
            with open_archive(self.archive) as (stream, _):
                stream.seek(self.offset)
                with tarfile.TarFile(fileobj=stream, encoding="utf-8") as tar:
                    yield from self._read(tar)
        except OSError:
            raise
        except TAR_ERRORS as error:
            raise OSError(EIO, f"the tar {self.archive} is damaged: {error}") from error

    def _read(self, tar: tarfile.TarFile) -> Iterator[bytes]:
        member: Any = tar.firstmember  # type: ignore[attr-defined]  # known to Python, not to its stubs
        content = tar.extractfile(member) if member is not None and member.name == self.name else None
        if content is None:
            raise OSError(EIO, f"the tar {self.archive} has changed: plan again")
        with content:
            size_bytes = 0
            while chunk := content.read(_CHUNK_BYTES):
                size_bytes += len(chunk)
                yield chunk
        if size_bytes != member.size:
            raise OSError(EIO, f"the tar {self.archive} is cut off in this file")


@asynccontextmanager
async def local_file(path: str) -> AsyncIterator[Path]:
    """Yield the local file that the field `path` of an item names.

    For a member of a tar, this is a copy, which is deleted at the end of the block.

    Raises:
        OSError: the member of the tar cannot be read. An ordinary file is not opened.
    """
    member = TarMember.from_path(path)
    if member is None:
        yield Path(path)
        return
    with LockedTempDir() as folder:
        copy = folder.path / PurePosixPath(member.name).name
        await asyncio.to_thread(member.copy_to, copy)
        yield copy


def content_sha256(path: str) -> str:
    """Return the SHA-256, in hexadecimal, of the file that the field `path` of an item names.

    Raises:
        OSError: the file, or the member of the tar, cannot be read.
    """
    member = TarMember.from_path(path)
    if member is None:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for chunk in member.read():
        digest.update(chunk)
    return digest.hexdigest()


def size_and_mtime(path: str) -> tuple[object, ...]:
    """Return size (bytes) and modification time (epoch nanoseconds) of the file or tar that an item's `path` names.

    For a tar at a URI, return a random value in place of these, so that the tar always counts as changed.

    Raises:
        OSError, ValueError: the file cannot be found.
    """
    member = TarMember.from_path(path)
    if member is not None and "://" in member.archive:
        return (os.urandom(16),)
    stat = Path(member.archive if member else path).stat()
    return stat.st_size, stat.st_mtime_ns
