"""Fetches URLs from public addresses only, as protection from server-side request forgery (SSRF).

Every address is checked when its socket is created, after name resolution and for each redirect. So no host name,
spelling of an address or redirect can avoid the check. The rules are in `public_addresses` and `url_rules`. Size
limits count the bytes that arrive, after decompression; the size that the headers declare is not used.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from lightmeter.errors import FetchError, ForbiddenAddress, MediaTooLarge
from lightmeter.media.media_info import is_video
from lightmeter.public_addresses import is_public
from lightmeter.service.ingest.asset_content import AssetContent, AssetContentWriter
from lightmeter.service.ingest.url_rules import PORTS, url_rejection
from lightmeter.wire.constants import FILE_TOO_LARGE, MAX_FILE_BYTES

MAX_REDIRECTS: Final = 3
CHUNK_BYTES: Final = 256 * 1024
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
USER_AGENT: Final = "lightmeter-service"

HEADER_BYTES: Final = 8190
"""Maximum size of each header, and of the status line, in the answer of a host. If one is larger, the fetch fails.

aiohttp accepts at most 128 headers.
"""

MAX_REASON_CHARS: Final = 120

RESOLVER_THREADS: Final = 128
"""Maximum number of host names that are resolved at the same time.

It is at least the number of images and videos that are fetched at the same time (see `MAX_OPEN_ASSETS`). So slow name
servers for the URLs of one account do not delay other accounts.
"""


class _AddressNotPublic(PermissionError):
    """The address to connect to is not public. It is an OSError, so that aiohttp tries the host's next address."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits for fetching one URL.

    Attributes:
        max_image_bytes: Maximum size of an image, and of all other content that is not a video, after decompression.
        max_video_bytes: Maximum size of a video, after decompression.
        total_s: Maximum seconds for the whole fetch, including redirects.
        connect_s: Maximum seconds to resolve the host name and connect.
        max_pause_s: Maximum seconds without new data from the host.
        ports: Allowed ports of public hosts.
        is_public: Function that takes an IP address and returns whether the fetcher may connect to it.
    """

    max_image_bytes: int = MAX_FILE_BYTES
    max_video_bytes: int = 200 * 1024 * 1024
    total_s: float = 60.0
    connect_s: float = 10.0
    max_pause_s: float = 20.0
    ports: frozenset[int] = PORTS
    is_public: Callable[[str], bool] = is_public


_LIMITS: Final = FetchLimits()


class _ThreadedResolver(AbstractResolver):
    """Resolves host names in threads of its own, so that slow look-ups do not block threads that do other work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="lightmeter-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        resolve = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, resolve)
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Fetcher:
    """HTTP client that fetches images and videos. Use it as an async context manager.

    Args:
        allow_private: Whether private addresses and all ports are allowed too, for a service on the user's own machine.
        limits: Limits for fetching one URL.
        resolver: Resolver of host names; the fetcher closes it at the end. None: use the operating system's resolver.
    """

    def __init__(
        self, *, allow_private: bool, limits: FetchLimits = _LIMITS, resolver: AbstractResolver | None = None
    ) -> None:
        self._allow_private = allow_private
        self._limits = limits
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        limits = self._limits
        timeout = aiohttp.ClientTimeout(total=limits.total_s, connect=limits.connect_s, sock_read=limits.max_pause_s)
        self._resolver = self._resolver or _ThreadedResolver()
        # No limit of its own: it would not know accounts. The analyzer limits how many assets are fetched at once.
        connector = aiohttp.TCPConnector(limit=0, resolver=self._resolver, socket_factory=self._create_socket)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),  # cookies of one client must not be sent for another one
            headers={"User-Agent": USER_AGENT},
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
        if self._resolver is not None:
            await self._resolver.close()

    def _create_socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, socket_address = address
        if not self._allow_private and not self._limits.is_public(str(socket_address[0])):
            raise _AddressNotPublic(errno.EACCES, "the address is not public")
        return socket.socket(family=family, type=kind, proto=protocol)

    @asynccontextmanager
    async def fetch(self, url: str) -> AsyncIterator[AssetContent]:
        """Fetch a URL, and yield its content. The content exists only until the `with` block ends.

        Raises:
            ForbiddenAddress: the URL or its address is not allowed.
            FetchError: the host did not answer in time, answered with another status than 200, or redirected more than
                `MAX_REDIRECTS` times.
            MediaTooLarge: the content is larger than the limits allow.
            TempFolderError: the content cannot be stored.
        """
        with AssetContentWriter() as writer:
            try:
                async with asyncio.timeout(self._limits.total_s):
                    content = await self._follow_redirects(url, writer)
            except aiohttp.ClientConnectorError as error:
                if isinstance(error.os_error, _AddressNotPublic):
                    raise ForbiddenAddress("the address is not public") from error
                raise FetchError(_describe_error(error)) from error
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                raise FetchError(_describe_error(error)) from error
            yield content

    async def _follow_redirects(self, text: str, writer: AssetContentWriter) -> AssetContent:
        assert self._session is not None  # noqa: S101 (entered before use)
        for _ in range(MAX_REDIRECTS + 1):
            rejection = url_rejection(text, allow_private=self._allow_private, ports=self._limits.ports)
            if rejection is not None:
                raise ForbiddenAddress(rejection)
            url = URL(text)
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status in REDIRECTS and "Location" in response.headers:
                    # Joined as text: a URL parser could normalize away what `url_rejection` must see.
                    text = urljoin(str(url), response.headers["Location"])
                    continue
                if response.status != 200:  # noqa: PLR2004 (only this status has the content)
                    raise FetchError(f"HTTP {response.status}")
                return await self._read_body(response, writer)
        raise FetchError(f"more than {MAX_REDIRECTS} redirects")

    async def _read_body(self, response: aiohttp.ClientResponse, writer: AssetContentWriter) -> AssetContent:
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            writer.add(chunk)
            if writer.size_bytes > self._limits.max_image_bytes and not is_video(writer.head):
                raise MediaTooLarge(FILE_TOO_LARGE)
            if writer.size_bytes > self._limits.max_video_bytes:
                raise MediaTooLarge(f"more than {self._limits.max_video_bytes // 1024**2} MB")
        return writer.content()


def _describe_error(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientPayloadError) and "not completed" in str(error):  # the rest is a Python repr
        return "the transfer ended before the content was complete"
    # Only part of the first line, because messages of aiohttp quote what the host has sent.
    message = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return message.strip().partition("\n")[0][:MAX_REASON_CHARS].rstrip(" :") or type(error).__name__
