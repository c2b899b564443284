"""Divides a service's rate limit between the processes of one machine that use the same API key.

Each process locks a small file of its own, writes what its rate limiter has learned into this file, and regularly reads
the files of the other processes. When a process ends, even by a crash, the operating system releases its lock. The
other processes notice that, and divide the share of the ended process between themselves. Each process also saves the
limit that it has learned, for processes that start later.
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

STATE_MAX_AGE_S: Final = 7 * 86_400.0
"""Age in seconds from which on a saved rate limit is ignored: limits change with the service's plans and prices."""

_LAST_STATE_FILE: Final = "last.json"
_MEMBER_SUFFIX: Final = ".member"
_MEMBER_BYTES: Final = 512
"""Fixed length in bytes of the file of each process, so that a single write replaces its whole content."""


class SharedLimitMember:
    """Exchanges learned rate limits, by small files, between this process and others that use the same API key.

    Args:
        folder: The existing folder of these files, which all processes with this service and API key use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{uuid4().hex}{_MEMBER_SUFFIX}"
        unlocked = self._own.with_suffix(".new")
        self._file = os.open(unlocked, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        unlocked.rename(self._own)  # (others take an unlocked file for that of a dead process)

    def exchange_states(self, state: Mapping[str, float]) -> list[dict[str, float]]:
        """Publish this process's learned rate limit (`AdaptiveLimiter.state`); return those of the other processes."""
        os.pwrite(self._file, json.dumps(state).encode().ljust(_MEMBER_BYTES), 0)
        others = [path for path in self._folder.glob(f"*{_MEMBER_SUFFIX}") if path != self._own]
        return [found for path in others if (found := _read_member(path)) is not None]

    def load_last_state(self, now: float) -> dict[str, float]:
        """Return the rate limit that was saved last, with the keys of `AdaptiveLimiter.state`.

        The result is empty if none was saved in the seven days before `now` (seconds since the epoch).
        """
        try:
            saved = json.loads((self._folder / _LAST_STATE_FILE).read_bytes())
            return _numbers(saved["state"]) if 0 <= now - saved["at"] < STATE_MAX_AGE_S else {}
        except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is unreadable
            return {}

    def save_last_state(self, state: Mapping[str, float], now: float) -> None:
        """Save a learned rate limit (`AdaptiveLimiter.state`) for later processes, unless `state` is empty.

        `now` is the present time in seconds since the epoch. A failure to write the file is ignored.
        """
        if state:
            with suppress(OSError):  # (useful, but no reason to fail)
                write_bytes(self._folder / _LAST_STATE_FILE, json.dumps({"state": dict(state), "at": now}).encode())

    def close(self) -> None:
        """Remove this process's file; the other processes then divide this process's share of the rate limit."""
        with suppress(FileNotFoundError):
            self._own.unlink()
        os.close(self._file)


def _read_member(path: Path) -> dict[str, float] | None:
    """Return what another process has written to its file about the limit that it learned: name → number.

    The result is empty if the process is writing to the file at this moment. If the process has ended, remove its file
    and return None.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with suppress(ValueError):  # it is being written at this moment
            return _numbers(json.loads(os.pread(file, _MEMBER_BYTES, 0) or b"{}"))
        return {}
    else:
        with suppress(FileNotFoundError):
            path.unlink()
        return None
    finally:
        os.close(file)


def _numbers(value: Any) -> dict[str, float]:
    """Return the numbers in a decoded JSON object, by name.

    Values of other types are dropped: another version of lightmeter may have stored them.
    """
    pairs = value.items() if isinstance(value, dict) else ()
    return {name: float(number) for name, number in pairs if isinstance(number, int | float)}


@contextmanager
def join_shared_limit(folder: Path, base_url: str, api_key: str) -> Iterator[SharedLimitMember]:
    """Share learned rate limits with other processes that use `api_key` at `base_url`, during a `with` block.

    Yield the object that exchanges the limits. Different spellings of one base URL count as the same service. The key
    is not stored.

    Args:
        folder: The folder in which lightmeter keeps files that processes share.
        base_url: Address of the service.
        api_key: Key of the account.

    Raises:
        OSError: the folder cannot be written.
        SettingsError: the base URL is invalid.
    """
    name = hashlib.blake2b(f"{canonical_base_url(base_url)}\n{api_key}".encode(), digest_size=12).hexdigest()
    own = folder / "pace" / name
    own.mkdir(parents=True, exist_ok=True)
    member = SharedLimitMember(own)
    try:
        yield member
    finally:
        member.close()
