"""Atomic file writes: write a temporary file in the same folder, flush it, rename it, and flush the folder.

Readers get the old file or the new one, never an incomplete one, even after a power cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex


@contextmanager
def atomic_replace(target: Path) -> Iterator[Path]:
    """Yield the path of a temporary file beside `target`; rename it to `target` when the block ends without an error.

    If the block raises, the temporary file is removed and `target` does not change. A glob on the suffix of `target`
    does not find the temporary file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{token_hex(4)}.tmp"
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
        fsync_folder(target.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes(target: Path, content: bytes) -> None:
    """Write `content` to `target`, completely or not at all."""
    with atomic_replace(target) as temporary:
        temporary.write_bytes(content)


def write_text(target: Path, content: str) -> None:
    """Write the text `content` to `target` as UTF-8, completely or not at all."""
    write_bytes(target, content.encode())


def fsync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that new names in it survive a power cut; do nothing where the system cannot."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
