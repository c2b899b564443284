"""Cache file for content that is slow to create, with a digest that detects damage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from lightmeter.atomic import write_bytes

_DIGEST_BYTES: Final = 32


def load_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    """Return the content of a cache file; if the file is missing or damaged, create and store the content.

    The file holds the SHA-256 of the content, then the content. The digest matters because a model with a flipped bit
    would load and give wrong results. If the folder is not writable, the content is created at each start.

    Args:
        path: The cache file; its name must change with everything that `make` depends on.
        make: Function that creates the content; its exceptions are not caught.
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
