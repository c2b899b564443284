"""Stores the secret token that the URL of `lightmeter ui` contains.

The token is the same after a restart of `lightmeter ui`, so that a page that is still open can connect again.
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
    """Return the secret token in the page's URL.

    The token is stored in a file that only its owner can read, so that each start with the same folder and port has the
    same token. If it cannot be stored, each start has a new token.

    Args:
        state_dir: Folder for the files with tokens.
        folder: The run's folder.
        port: The port. 0 means that a free port will be chosen. Its token is always new and is not stored.
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
