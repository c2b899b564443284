"""Makes paths that users write absolute, as soon as they are read."""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator

URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""The start of a URI, also of one that `Path` has read: it makes one slash of two."""


def local_path(path: str | PathLike[str], base: Path | None = None) -> Path:
    """Return the absolute form of a path that a user wrote; a relative one is in `base`, or in the working folder.

    A `~` or `~USER` at the start is a home folder, as in a shell. It stays as it is if there is no such user. A folder
    named `~` is written as `./~`. A URI stays as it is, for the caller to refuse it.
    """
    if URI.match(os.fspath(path)):
        return Path(path)
    return Path(base or "", os.path.expanduser(path)).absolute()  # noqa: PTH111 (`Path("./~")` would lose its `./`)


def local_path_or_uri(where: str | PathLike[str]) -> str:
    """Return a URI such as `s3://bucket` unchanged, and a path as `local_path` returns it, as text."""
    return where if isinstance(where, str) and "://" in where else str(local_path(where))


HomePath: TypeAlias = Annotated[
    Path,
    BeforeValidator(lambda value: os.path.expanduser(value) if isinstance(value, str) else value),  # noqa: PTH111
]
"""Type of a pydantic field for a path in which `~` is expanded, but which stays relative to a folder of its reader."""

LocalPath: TypeAlias = Annotated[
    Path, BeforeValidator(lambda value: local_path(value) if isinstance(value, str | PathLike) else value)
]
"""Type of a pydantic field for a path that a user writes."""
