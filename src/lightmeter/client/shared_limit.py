"""Processes of one machine that use the same key at the same service share what the service allows.

Each holds a small file of its own, locked as long as it lives, and writes into it what it has learned; each looks at
the files of the others now and then. The system drops the lock of a process however it dies, so that its share is
free at the next look of the others. What was known when the last one left is kept for the next start.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from lightmeter.atomic import write_bytes
from lightmeter.client.base_url import canonical_base_url

__all__ = ["STATE_MAX_AGE_S", "SharedLimitMember", "join_shared_limit"]

STATE_MAX_AGE_S: Final = 7 * 86_400.0
"""What was learned longer ago is not worth starting with: limits change with plans and prices."""

_LAST: Final = "last.json"
_SUFFIX: Final = ".member"
_RECORD_BYTES: Final = 512


class SharedLimitMember:
    """A process's place among those that use a key; made by `join_shared_limit`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{uuid4().hex}{_SUFFIX}"
        unlocked = self._own.with_suffix(".new")
        self._file = os.open(unlocked, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        unlocked.rename(self._own)  # nobody meets it without its lock, and takes it for a dead one's

    def exchange_states(self, state: Mapping[str, float]) -> list[dict[str, float]]:
        """Tell the others what this one has learned, and hear it from them.

        Args:
            state: As `AdaptiveLimiter.state` gives it.

        Returns:
            What each other living process has learned, as its `AdaptiveLimiter.state`.
        """
        os.pwrite(self._file, json.dumps(state).encode().ljust(_RECORD_BYTES), 0)
        return [
            said
            for path in self._folder.glob(f"*{_SUFFIX}")
            if path != self._own and (said := _heard(path)) is not None
        ]

    def load_last_state(self, now: float) -> dict[str, float]:
        """What the last one to leave knew, if that is not too long ago; `now` is seconds since the epoch."""
        try:
            kept = json.loads((self._folder / _LAST).read_bytes())
            return _numbers(kept["state"]) if 0 <= now - kept["at"] < STATE_MAX_AGE_S else {}
        except (OSError, ValueError, KeyError, TypeError):  # none, or none that can be read: begin anew
            return {}

    def save_last_state(self, state: Mapping[str, float], now: float) -> None:
        """Free this share, and keep what is known; `now` is seconds since the epoch."""
        if state:
            with suppress(OSError):  # (worth having, never worth failing for)
                write_bytes(self._folder / _LAST, json.dumps({"state": dict(state), "at": now}).encode())

    def close(self) -> None:
        """Let go of the file."""
        with suppress(FileNotFoundError):
            self._own.unlink()
        os.close(self._file)


def _heard(path: Path) -> dict[str, float] | None:
    """What another process says; None if it is no more: its file is taken away."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with suppress(ValueError):  # it is just being written
            return _numbers(json.loads(os.pread(file, _RECORD_BYTES, 0) or b"{}"))
        return {}
    else:
        with suppress(FileNotFoundError):
            path.unlink()
        return None
    finally:
        os.close(file)


def _numbers(value: Any) -> dict[str, float]:
    """The numbers by name in what a file says; the file may be of another version."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {name: float(one) for name, one in pairs if isinstance(one, int | float)}


@contextmanager
def join_shared_limit(folder: Path, base_url: str, api_key: str) -> Iterator[SharedLimitMember]:
    """A place among those that use `api_key` at `base_url`, however that is spelled; the key is written nowhere.

    Raises:
        OSError: the folder cannot be written.
        SettingsError: the address cannot be used.
    """
    name = hashlib.blake2b(f"{canonical_base_url(base_url)}\n{api_key}".encode(), digest_size=12).hexdigest()
    own = folder / "pace" / name
    own.mkdir(parents=True, exist_ok=True)
    share = SharedLimitMember(own)
    try:
        yield share
    finally:
        share.close()
