"""Encodes local files for a request: checks their size, reads them, and returns them as base64."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from lightmeter.errors import MediaTooLarge, UsageError
from lightmeter.wire.constants import MAX_FILE_BYTES


async def encode_files(files: Iterable[bytes | str | Path]) -> tuple[list[str], list[str]]:
    """Return the contents as base64, and their names: the last part of a path, or `file-<position>` for bytes.

    Raises:
        MediaTooLarge: a file exceeds the service's limit; this is checked before it is read.
        UsageError: a file cannot be read.
    """
    items = list(files)
    contents = [await asyncio.to_thread(_encode, file, position) for position, file in enumerate(items)]
    return contents, [_name(file, position) for position, file in enumerate(items)]


def _encode(file: bytes | str | Path, position: int) -> str:
    name = _name(file, position)
    if isinstance(file, bytes):
        _check_size(name, len(file))
        return b64encode(file).decode("ascii")
    path = Path(file)
    try:
        _check_size(name, path.stat().st_size)
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}.") from error
    _check_size(name, len(content))  # it may have grown meanwhile
    return b64encode(content).decode("ascii")


def _name(file: bytes | str | Path, position: int) -> str:
    return f"file-{position}" if isinstance(file, bytes) else Path(file).name


def _check_size(name: str, size_bytes: int) -> None:
    if size_bytes > MAX_FILE_BYTES:
        raise MediaTooLarge(f"{name} has {size_bytes} bytes; the service takes {MAX_FILE_BYTES} at most.")
