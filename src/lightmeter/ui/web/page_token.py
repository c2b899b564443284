"""Stores the secret token that the URL of `lightmeter ui` contains.

After a restart of `lightmeter ui`, the token is the same, so that an open page connects again.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

TOKEN_BYTES: Final = 24


def page_token(state_dir: Path, folder: Path, port: int) -> str:
    """Return the secret token in the page's URL: the same at each start, or a new one if none can be stored.

    The token is in a file that only its owner can read.

    Args:
        state_dir: Folder for the files with tokens.
        folder: The run's folder.
        port: The port; 0 stands for a free one, whose token is never kept.
    """
    if port == 0:
        return token_urlsafe(TOKEN_BYTES)
    name = hashlib.sha256(f"{port} {folder.resolve()}".encode()).hexdigest()[:32]
    path, token = state_dir / "ui" / f"{name}.token", token_urlsafe(TOKEN_BYTES)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            found, kept = os.fstat(file), os.read(file, 200).decode(errors="replace")
            if found.st_uid == os.getuid() and not found.st_mode & 0o077:
                if len(kept) == len(token) and kept.isascii():
                    return kept
                os.ftruncate(file, 0)
                os.pwrite(file, token.encode(), 0)
        finally:
            os.close(file)
    return token
