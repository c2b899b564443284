"""Exchange of two folders in one step, so that a set of files is replaced atomically.

POSIX can rename only one entry at a time: a reader that lists between two renames would see rows twice or not at all.
Linux (`renameat2`, since 3.15) and macOS (`renamex_np`, since 10.12) have a system call that swaps two names, but the
Python standard library does not offer it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Any, Final

from lightmeter.errors import UsageError

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
"""Flag `RENAME_EXCHANGE` of `linux/fs.h`, and `RENAME_SWAP` of `sys/stdio.h` of macOS."""
_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def swap_dirs(first: Path, second: Path) -> None:
    """Exchange the names of two folders of one file system atomically.

    Raises:
        UsageError: The operating system or the file system cannot swap folders.
        OSError: A folder is missing, or the folders are on different file systems.
    """
    library = ctypes.CDLL(None, use_errno=True)
    swap: Any = getattr(library, "renamex_np" if sys.platform == "darwin" else "renameat2", None)
    names = os.fsencode(first), os.fsencode(second)
    if swap is None:
        number = errno.ENOSYS
    elif sys.platform == "darwin":
        number = swap(*names, ctypes.c_uint(_RENAME_EXCHANGE)) and ctypes.get_errno()
    else:
        number = swap(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE)) and ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        raise UsageError(
            f"The file system of {first} cannot swap two folders in one step.",
            hint="Move the folder tables/ away and rebuild: a table with one part needs no swap.",
        )
    if number:
        raise OSError(number, os.strerror(number), str(first), None, str(second))
