"""Encodes local files for a request: checks their size, reads them, and returns them as base64."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from lightmeter.errors import MediaTooLarge, UsageError
from lightmeter.paths import local_path
from lightmeter.wire.constants import MAX_FILE_BYTES


async def encode_files(files: Iterable[bytes | str | Path]) -> tuple[list[str], list[str]]:
    """Return (the contents of the files in base64, the names of the files), both in the order of `files`.

    The name of a path is its last part. The name of bytes is `file-<position>`, where positions count from 0.

    Raises:
        MediaTooLarge: a file exceeds the service's limit on its size; a local file is checked before it is read.
        UsageError: a file cannot be read, or is neither bytes nor a path.
    """
    encoded = [await asyncio.to_thread(_encode, file, position) for position, file in enumerate(files)]
    return [content for _, content in encoded], [name for name, _ in encoded]


def _encode(file: bytes | str | Path, position: int) -> tuple[str, str]:
    if isinstance(file, bytes | bytearray | memoryview):
        name, content = f"file-{position}", bytes(file)
    elif not isinstance(file, str | PathLike):
        raise UsageError(
            f"The file at index {position} is of type {type(file).__name__}, neither bytes nor a path.",
            hint="Of an open file, give what its method `read` returns, as bytes.",
        )
    else:
        path = local_path(file)
        name = path.name
        try:
            _check_size(name, path.stat().st_size)
            content = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}.") from error
    _check_size(name, len(content))  # a file may have grown meanwhile
    return name, b64encode(content).decode("ascii")


def _check_size(name: str, size_bytes: int) -> None:
    if size_bytes > MAX_FILE_BYTES:
        raise MediaTooLarge(f"{name} has {size_bytes} bytes; the service takes {MAX_FILE_BYTES} at most.")
