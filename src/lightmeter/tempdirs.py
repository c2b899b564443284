"""Folders for work in progress, among the system's temporary files; what a killed process left is removed by the next.

Whoever has such a folder holds a lock on it; the system drops the lock however its process dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["LockedTempDir"]

_PREFIX: Final = "lightmeter-scratch-"


class LockedTempDir:
    """A folder of one's own, which goes at the end of the block, with this object, or with the process.

    Attributes:
        path: The folder.

    Raises:
        OSError: There is no room for it.
    """

    def __init__(self) -> None:
        _sweep()
        self.path, lock = _locked_folder()
        self.remove = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _locked_folder() -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            lock = _opened(path)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)  # a sweeper came between: it took the folder for a dead one's


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _sweep() -> None:
    """Remove the folders that nobody holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, held, or just removed
            lock = _opened(path)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
