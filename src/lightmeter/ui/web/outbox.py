"""`Outbox`: the messages that wait to be sent to one page; a page that reads slowly does not make it grow."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from typing import Any, Final

MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of replies and events that wait."""


class OutboxOverflow(Exception):
    """More replies and events wait than the outbox may hold, because the page does not read them."""


class Outbox:
    """Queue of messages to one page: the newest values of the page's state, and all replies and events in order.

    Any thread may add messages; one task of the event loop takes them.
    """

    def __init__(self, read_state: Callable[[Iterable[str]], dict[str, Any]], max_bytes: int = MAX_BYTES) -> None:
        """Create the outbox of one browser tab, in the event loop that sends its messages.

        Args:
            read_state: Returns the current values of the view-model's traits (its observable attributes) by name.
            max_bytes: Most bytes of messages that wait to be sent; beyond that, the tab is disconnected.
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

    def put_state(self, names: Iterable[str]) -> None:
        """Note that these traits (observable attributes) of the view-model changed: `take` returns new values."""
        with self._lock:
            self._traits.update(dict.fromkeys(names))
        self._wake()

    def put(self, message: Any) -> None:
        """Add a reply or an event, a JSON-compatible object."""
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
            OutboxOverflow: replies and events were lost, because the page did not read them.
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

    async def wait_for_room(self) -> None:
        """Wait until unsent messages take at most half of `max_bytes`; call it before the page's next request."""
        while self._bytes > self._max_bytes // 2:
            self._taken.clear()
            await self._taken.wait()
