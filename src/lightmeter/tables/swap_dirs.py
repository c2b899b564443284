"""Exchange two folders in one step, so that a set of files is replaced atomically.

POSIX renames one entry at a time, and a reader that lists between two renames sees rows twice or not at all. Linux
(`renameat2`, since 3.15) and macOS (`renamex_np`, since 10.12) have a call that swaps two names; Python lacks it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Any, Final

from lightmeter.errors import UsageError

__all__ = ["swap_dirs"]

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
"""From `linux/fs.h`."""
_RENAME_SWAP: Final = 2
"""From macOS's `sys/stdio.h`."""
_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def swap_dirs(one: Path, other: Path) -> None:
    """Exchange two entries of one file system atomically.

    Raises:
        UsageError: The system or the file system has no such call.
        OSError: Either is missing, or they are on different file systems.
    """
    library = ctypes.CDLL(None, use_errno=True)
    swap: Any = getattr(library, "renamex_np" if sys.platform == "darwin" else "renameat2", None)
    if swap is None:
        raise _not_supported_error(one)
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = swap(*names, ctypes.c_uint(_RENAME_SWAP))
    else:
        failed = swap(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE))
    if failed:
        number = ctypes.get_errno()
        if number in _NOT_SUPPORTED:
            raise _not_supported_error(one)
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def _not_supported_error(folder: Path) -> UsageError:
    return UsageError(
        f"The file system of {folder} cannot swap two folders in one step.",
        hint="Move its folder tables/ away and rebuild: tables of one part need no swap.",
    )
