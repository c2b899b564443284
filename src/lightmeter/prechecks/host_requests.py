"""Sends requests to the hosts of a manifest: within a limit for each host, with pauses, and as robots.txt allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic
from typing import Final

from lightmeter.errors import FetchError
from lightmeter.http_url import host_key, parse_http_url
from lightmeter.prechecks.host_limit import HostLimit
from lightmeter.prechecks.memory_limit import MemoryReservation
from lightmeter.prechecks.robots_rules import RobotsRules
from lightmeter.prechecks.url_probe import BrokenTransfer, HostUnavailable, NoAnswer, ReadLimits, UrlProber
from lightmeter.prechecks.url_verdict import ProbeResponse

MAX_TRIES: Final = 3
"""If a host answers that it gets too many requests, a request is sent at most this many times."""

MAX_KNOWN_HOSTS: Final = 4096
"""Number of hosts whose limits are remembered. If there are more, a new host replaces one that is idle."""

MAX_ROBOTS_FILES: Final = 1024
"""Number of hosts whose robots.txt is remembered. If there are more, a new file replaces the oldest."""

ROBOTS_BYTES: Final = 512 * 1024
"""Number of first bytes of a robots.txt that are read; RFC 9309 asks for at least 500 KiB."""

ROBOTS_TIMEOUT_S: Final = 15.0
"""Longest time in seconds of a request for a robots.txt, including its redirects; a wait for a slot does not count."""

_FIRST_PAUSE_S: Final = 0.5
_MAX_PAUSE_S: Final = 10.0


class HostLimits:
    """Creates and keeps a `HostLimit` (a limit on simultaneous requests) for each host in a manifest.

    Args:
        max_per_host: Most simultaneous requests to one host; `HostLimit` may allow fewer.
    """

    def __init__(self, max_per_host: int) -> None:
        self._max_per_host = max_per_host
        self._hosts: dict[str, HostLimit] = {}

    def limit_of(self, url: str) -> HostLimit:
        """Return the limit on requests to a URL's host: all spellings of scheme, host and port share one.

        For a new host, a limit is created. If `MAX_KNOWN_HOSTS` are known already, an idle host is forgotten.
        """
        name = host_key(url)
        if name not in self._hosts:
            if len(self._hosts) >= MAX_KNOWN_HOSTS:
                idle = (known for known, limit in self._hosts.items() if limit.is_idle)
                if (oldest := next(idle, None)) is not None:
                    del self._hosts[oldest]
            self._hosts[name] = HostLimit(self._max_per_host)
        return self._hosts[name]


async def send_with_retries(
    host: HostLimit,
    request: Callable[[], Awaitable[ProbeResponse]],
    slots: asyncio.Semaphore,
    *,
    timed: bool = True,
    memory: MemoryReservation | None = None,
) -> ProbeResponse:
    """Send a request and return its response; if it fails in a way that may pass, send it again after a pause.

    If the host gets too many requests (HTTP 429 or 503), the request is sent up to `MAX_TRIES` times, and the last
    response is returned; the pause is the one that the host asks for, but at most 10 s. If the connection breaks or
    times out, the request is sent once more.

    Args:
        host: The limit on requests to the host; the caller is inside `host.slot()`.
        request: Sends the request.
        slots: Semaphore that limits requests to all hosts together. It is acquired here for each try, so the caller
            must not hold it.
        timed: Whether a slow response lowers the limit of the host; false for downloads of very different lengths.
        memory: Memory that `request` reserves; None if it reserves none. It is released before each pause, because
            tasks that hold a slot wait for memory: a task that held memory while it waits for a slot would block them.

    Raises:
        FetchError: there is no response.
    """
    pause_s, is_repeated = _FIRST_PAUSE_S, False
    for tries_left in reversed(range(MAX_TRIES)):
        asked_s = None
        try:
            async with slots:
                started_s = monotonic()
                response = await request()
        except (NoAnswer, BrokenTransfer) as error:
            if isinstance(error, HostUnavailable):
                host.failed(str(error), monotonic())
            if is_repeated or not tries_left or host.skip_reason(monotonic()) is not None:
                raise
            is_repeated = True
        else:
            if response.is_rate_limited:
                host.refused(monotonic())
                asked_s = response.retry_after_s
            else:
                host.answered(monotonic() - started_s if timed else None, monotonic())
                if is_repeated or not tries_left or not response.broke_off:
                    return response
                is_repeated, response = True, replace(response, head=b"")
            if not tries_left:
                break
        if memory is not None:
            await memory.release()
        await asyncio.sleep(min(asked_s or pause_s, _MAX_PAUSE_S))
        pause_s *= 2
    host.failed(f"HTTP {response.status}", monotonic())
    return response


class RobotsFiles:
    """Reads the robots.txt of each host once, and tells which URLs it disallows. Callers must call `close` at the end.

    Args:
        prober: The HTTP client.
        slots: Semaphore that limits requests to all hosts together. It is acquired here for each request.
    """

    def __init__(self, prober: UrlProber, slots: asyncio.Semaphore) -> None:
        self._prober = prober
        self._slots = slots
        self._files: dict[str, asyncio.Task[RobotsRules | str]] = {}

    async def opt_out(self, url: str, host: HostLimit) -> str | None:
        """Return a sentence that says why robots.txt disallows a URL; None if the URL is allowed.

        As RFC 9309 asks, everything is allowed if robots.txt does not exist. Nothing is allowed if robots.txt cannot be
        read because of a server error or the network.

        Args:
            url: The URL.
            host: The limit on requests to the URL's host; the caller is inside `host.slot()`.
        """
        try:
            parts = parse_http_url(url)
        except ValueError:
            return None  # the request for the URL itself reports the error
        origin = host_key(url)
        if origin not in self._files:
            if len(self._files) >= MAX_ROBOTS_FILES:
                finished = (known for known, file in self._files.items() if file.done())
                if (oldest := next(finished, None)) is not None:
                    del self._files[oldest]
            self._files[origin] = asyncio.create_task(self._read(parts.origin, host))
        rules = await asyncio.shield(self._files[origin])
        if isinstance(rules, str):
            return f"robots.txt could not be read ({rules}), which counts as an opt-out (RFC 9309)."
        rule = rules.blocking_rule(str(parts))
        return None if rule is None else f"robots.txt disallows it: Disallow: {rule}"

    async def close(self) -> None:
        """Cancel the requests for robots.txt files that still run."""
        files, self._files = list(self._files.values()), {}
        for file in files:
            file.cancel()
        await asyncio.gather(*files, return_exceptions=True)

    async def _read(self, origin: str, host: HostLimit) -> RobotsRules | str:
        """Read the robots.txt of an origin (`https://host:port`); return its rules, or why the file cannot be read."""
        url, limits = f"{origin}/robots.txt", ReadLimits(non_image_bytes=ROBOTS_BYTES)

        async def probe() -> ProbeResponse:  # the wait for a slot does not count
            async with asyncio.timeout(ROBOTS_TIMEOUT_S):
                return await self._prober.probe(url, limits)

        try:
            response = await send_with_retries(host, probe, self._slots, timed=False)
        except TimeoutError:
            return f"no whole answer in {ROBOTS_TIMEOUT_S:.0f} s"
        except (HostUnavailable, BrokenTransfer) as error:
            return str(error)
        except FetchError:  # too many redirects, no address, an encoding: RFC 9309 calls it unavailable
            return RobotsRules("")
        if response.status >= 500:  # noqa: PLR2004 (the 5xx class)
            return f"HTTP {response.status}"
        text = response.head.decode("utf-8", "replace") if response.ok else ""
        return await asyncio.to_thread(RobotsRules, text)
