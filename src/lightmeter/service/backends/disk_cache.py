"""Things that are slow to make and can be made again, kept in a file behind a digest of themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from lightmeter.atomic import write_bytes

__all__ = ["load_or_create"]

_DIGEST_BYTES: Final = 32


def load_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    """Read what is kept at `path`; when it is missing or damaged, make it and keep it.

    The file is the SHA-256 of the content, then the content: a flipped bit in a model would not stop it from
    loading, only from being right. A folder that cannot be written costs the time of making it at each start,
    nothing else.

    Args:
        path: Where; its name must change with everything that `make` depends on.
        make: Makes the content; what it raises is passed on.
    """
    with suppress(OSError):
        stored = path.read_bytes()
        content = stored[_DIGEST_BYTES:]
        if sha256(content).digest() == stored[:_DIGEST_BYTES]:
            return content
    content = make()
    with suppress(OSError):
        write_bytes(path, sha256(content).digest() + content)
    return content
