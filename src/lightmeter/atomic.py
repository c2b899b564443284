"""The only way a file is born: temporary neighbour, flush, rename, sync of the folder.

A reader sees the old file or the new one, never half of it, also after a power cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

__all__ = ["atomic_replace", "fsync_folder", "write_bytes", "write_text"]


@contextmanager
def atomic_replace(target: Path) -> Iterator[Path]:
    """Yield a temporary neighbour of `target`; when the block ends well, it becomes `target`.

    The neighbour's name starts with a dot and does not end in the target's suffix, so that a reader who
    globs for the suffix never meets it. When the block raises, the neighbour is removed and `target` stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{token_hex(4)}.tmp"
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
        fsync_folder(target.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes(target: Path, content: bytes) -> None:
    """Write `content` to `target`, whole or not at all."""
    with atomic_replace(target) as temporary:
        temporary.write_bytes(content)


def write_text(target: Path, content: str) -> None:
    """Write UTF-8 text to `target`, whole or not at all."""
    write_bytes(target, content.encode())


def fsync_folder(folder: Path) -> None:
    """Make the folder's entries durable; a no-op where folders cannot be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
