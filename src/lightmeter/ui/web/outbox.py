"""`Outbox`: the messages that wait to be sent to one page. Its size is limited, even if the page reads slowly."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from typing import Any, Final

MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum number of bytes of the replies and events that wait for one page."""


class OutboxOverflow(Exception):
    """Raised if more replies and events wait than the outbox can hold, because the page does not read them."""


class Outbox:
    """Queue of the messages to one page.

    Of a changed state, the page gets only the newest values. Of replies and events, it gets all, in order. Any thread
    may add messages. One task of the event loop takes them.
    """

    def __init__(self, read_state: Callable[[Iterable[str]], dict[str, Any]], max_bytes: int = MAX_BYTES) -> None:
        """Create the outbox of one browser tab, in the event loop that sends its messages.

        Args:
            read_state: Function that returns name → current value for the traits (observable attributes) of the
                view-model with the given names.
            max_bytes: Maximum number of bytes of waiting replies and events. If more wait, the tab is disconnected.
        """
        self._read_state = read_state
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._lock = Lock()
        self._traits: dict[str, None] = {}
        self._texts: deque[str] = deque()
        self._bytes = 0
        self._closed = False

    def put_state(self, names: Iterable[str]) -> None:
        """Note that the traits (observable attributes) `names` changed, so that `take` returns their new values."""
        with self._lock:
            self._traits.update(dict.fromkeys(names))
        self._wake()

    def put(self, message: Any) -> None:
        """Add a reply or an event. `message` is a JSON-compatible object."""
        text = json.dumps({"custom": message})
        with self._lock:
            if self._bytes <= self._max_bytes:  # (beyond it, `take` raises)
                self._texts.append(text)
            self._bytes += len(text)
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    async def take(self) -> str:
        """Wait for the next message and return it as JSON.

        Raises:
            OutboxOverflow: More than `max_bytes` of replies and events waited, so that some are lost.
        """
        while True:
            self._changed.clear()
            with self._lock:
                if self._bytes > self._max_bytes:
                    raise OutboxOverflow
                traits, self._traits = self._traits, {}
                text = None if traits or not self._texts else self._texts.popleft()
                self._bytes -= len(text or "")
            self._taken.set()
            if traits:
                return json.dumps({"state": self._read_state(traits)})
            if text is not None:
                return text
            await self._changed.wait()

    async def wait_for_room(self) -> bool:
        """Wait until unsent replies and events take at most half of `max_bytes`, or `close` is called.

        Call this before the next request of the page is processed. Return False if the outbox is closed.
        """
        while self._bytes > self._max_bytes // 2 and not self._closed:
            self._taken.clear()
            await self._taken.wait()
        return not self._closed

    def close(self) -> None:
        """End `wait_for_room`, because no task will take further messages. Call this in the event loop."""
        self._closed = True
        self._taken.set()
