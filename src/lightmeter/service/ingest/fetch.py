"""Fetches URLs from public addresses only, as protection from server-side request forgery (SSRF).

Every address is checked when its socket is created, after name resolution and for each redirect. So no host name,
spelling of an address or redirect can avoid the check. The rules are in `public_addresses` and `url_rules`. Size
limits count the bytes that arrive, after decompression; the size that the headers declare is not used. All else of a
request is as in the pre-checks (`lightmeter.http_fetch`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from lightmeter.errors import FetchError, ForbiddenAddress, MediaTooLarge
from lightmeter.http_fetch import (
    CONNECT_TIMEOUT_S,
    CONTENT_STATUSES,
    FETCH_TIMEOUT_S,
    MAX_VIDEO_BYTES,
    READ_TIMEOUT_S,
    content_chunks,
    has_only_a_part,
    open_session,
    request_content,
)
from lightmeter.http_url import HttpUrl
from lightmeter.media.media_info import is_video
from lightmeter.public_addresses import is_public
from lightmeter.service.ingest.asset_content import AssetContent, AssetContentWriter
from lightmeter.service.ingest.url_rules import PORTS, address_rejection
from lightmeter.wire.constants import FILE_TOO_LARGE, MAX_FILE_BYTES

USER_AGENT: Final = "lightmeter-service"

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
    max_video_bytes: int = MAX_VIDEO_BYTES
    total_s: float = FETCH_TIMEOUT_S
    connect_s: float = CONNECT_TIMEOUT_S
    max_pause_s: float = READ_TIMEOUT_S
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
        self._resolver = self._resolver or _ThreadedResolver()
        # No limit of its own: it would not know accounts. The analyzer limits how many assets are fetched at once.
        connector = aiohttp.TCPConnector(limit=0, resolver=self._resolver, socket_factory=self._create_socket)
        self._session = open_session(connector, {"User-Agent": USER_AGENT})
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
            FetchError: the host did not answer in time, answered with a status that has no content, or redirected more
                than `MAX_REDIRECTS` times.
            MediaTooLarge: the content is larger than the limits allow.
            TempFolderError: the content cannot be stored.
        """
        with AssetContentWriter() as writer:
            try:
                content = await self._read_content(url, writer)
            except aiohttp.ClientConnectorError as error:
                if isinstance(error.os_error, _AddressNotPublic):
                    raise ForbiddenAddress("the address is not public") from error
                raise FetchError(_describe_error(error)) from error
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                raise FetchError(_describe_error(error)) from error
            yield content

    async def _read_content(self, url: str, writer: AssetContentWriter) -> AssetContent:
        assert self._session is not None  # noqa: S101 (entered before use)
        limits = self._limits
        timeout = aiohttp.ClientTimeout(total=limits.total_s, connect=limits.connect_s, sock_read=limits.max_pause_s)
        async with request_content(self._session, url, limits=timeout, check=self._check_url) as response:
            if response.status not in CONTENT_STATUSES or has_only_a_part(response):
                raise FetchError(f"HTTP {response.status}")
            async with aclosing(content_chunks(response)) as chunks:
                async for chunk in chunks:
                    writer.add(chunk)
                    if writer.size_bytes > limits.max_image_bytes and not is_video(writer.head):
                        raise MediaTooLarge(FILE_TOO_LARGE)
                    if writer.size_bytes > limits.max_video_bytes:
                        raise MediaTooLarge(f"more than {limits.max_video_bytes // 1024**2} MB")
        return writer.content()

    def _check_url(self, url: HttpUrl) -> None:
        rejection = address_rejection(url, allow_private=self._allow_private, ports=self._limits.ports)
        if rejection is not None:
            raise ForbiddenAddress(rejection)


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
