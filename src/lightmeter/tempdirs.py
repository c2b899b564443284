"""Temporary folders that are removed even if their process is killed: the next process removes them.

Each process locks its folders. The system releases the locks when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

_PREFIX: Final = "lightmeter-scratch-"


class LockedTempDir:
    """A temporary folder, removed when the `with` block or the process ends, or this object is garbage-collected.

    Attributes:
        path: The folder.
        remove: Function that removes the folder; further calls do nothing.

    Raises:
        OSError: the folder cannot be created.
    """

    def __init__(self) -> None:
        remove_unlocked()
        self.path, lock = _create_locked()
        self.remove = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def _create_locked() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            lock = _open_folder(path)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)  # another process removed the folder before it was locked


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def remove_unlocked() -> None:
    """Remove temporary folders that ended processes of lightmeter have left behind."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, locked, or just removed
            lock = _open_folder(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


@contextmanager
def temp_dir_unless_error() -> Iterator[LockedTempDir]:
    """Yield a new temporary folder. If the block raises an exception, remove the folder; else the caller owns it."""
    temp_dir = LockedTempDir()
    try:
        yield temp_dir
    except BaseException:
        temp_dir.remove()
        raise
