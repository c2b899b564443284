"""Arrow with less memory, for processes that are ours alone: those of the command line."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

__all__ = ["LEAN", "begin_lean", "spare_pandas"]

LEAN: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Read when Arrow is imported: its usual pool keeps some 25 MB of what writing tables has freed."""


def begin_lean() -> None:
    """To be called before Arrow is imported; whoever has chosen a pool himself keeps it."""
    for name, value in LEAN.items():
        os.environ.setdefault(name, value)


def spare_pandas() -> None:
    """Keep Arrow from importing pandas (45 MB, a third of a second) as soon as it makes an array of anything.

    It looks for pandas once, to know its types when it sees them. Here it finds none; it looks again when somebody
    wants a frame. Nothing for a program that gives frames to Arrow, which is why only processes of ours do it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 (most of what wants to be lean has no need of it)

    hidden: Any = _Hidden
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)


class _Hidden:
    """Finds that there is no pandas, and leaves the rest to others."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004 (the import's signature)
        if name == "pandas":
            raise ModuleNotFoundError(name)
