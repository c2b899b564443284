"""Fetching what a URL names, from wherever the public may fetch it, and from nowhere else.

The address that is really dialled is checked, on every hop, at the socket: names that resolve to private addresses,
whenever they do, literals in every spelling and redirects all pass through there. Credentials in URLs, other schemes,
other ports and more than three redirects are refused. Sizes are counted on decoded bytes, whatever the headers say;
headers, each silence and the whole time are bounded. The rules are in `public_addresses` and `url_rules`.
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
from lightmeter.media.media_info import sniff
from lightmeter.models.vocabulary import FILE_TOO_LARGE, MAX_FILE_BYTES
from lightmeter.public_addresses import is_public
from lightmeter.service.ingest.payload import AssetPayload, PayloadWriter
from lightmeter.service.ingest.url_rules import PORTS, url_rejection

__all__ = ["FetchLimits", "Fetcher"]

MAX_REDIRECTS: Final = 3
CHUNK_BYTES: Final = 256 * 1024
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
USER_AGENT: Final = "lightmeter-service"
HEADER_BYTES: Final = 8190
"""Of one header, and of the status line; the client counts no more than 128 headers."""
MAX_REASON_CHARS: Final = 120
LOOKING_UP: Final = 16
"""Names that are looked up at once."""


class _NotPublic(PermissionError):
    """What the socket door raises: an OSError, so that the connector goes on to the host's next address."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "the address is not public")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How far a fetch may go.

    Attributes:
        most_image_bytes: Of an image and of anything that is no video, decoded; as when it is uploaded.
        most_video_bytes: Of a video.
        total_s: For all of it, redirects included: who sends a byte now and then is not waited for any longer.
        connect_s: For a connection, looking the name up included.
        silence_s: Between two pieces of an answer.
        ports: Where public hosts are asked.
        is_public: Whether an address may be asked at all.
    """

    most_image_bytes: int = MAX_FILE_BYTES
    most_video_bytes: int = 200 * 1024 * 1024
    total_s: float = 60.0
    connect_s: float = 10.0
    silence_s: float = 20.0
    ports: frozenset[int] = PORTS
    is_public: Callable[[str], bool] = is_public


_LIMITS: Final = FetchLimits()


class _Names(AbstractResolver):
    """Looks names up in threads of its own: names that are slow on purpose must not stop all other work in threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKING_UP, thread_name_prefix="lightmeter-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Fetcher:
    """Fetches URLs; what is large lies in a file, which lasts as long as the block of `fetch`.

    Args:
        allow_private: Also fetch from private addresses and other ports: for one's own machine.
        limits: How far a fetch may go.
        resolver: Looks names up; the system's resolver unless given. What it answers is not trusted. Closed with this.
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
        timeout = aiohttp.ClientTimeout(total=limits.total_s, connect=limits.connect_s, sock_read=limits.silence_s)
        self._resolver = self._resolver or _Names()
        connector = aiohttp.TCPConnector(limit=64, resolver=self._resolver, socket_factory=self._socket)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),  # one caller's fetch must not show in another's
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

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, where = address
        if not self._allow_private and not self._limits.is_public(str(where[0])):
            raise _NotPublic
        return socket.socket(family=family, type=kind, proto=protocol)

    @asynccontextmanager
    async def fetch(self, url: str) -> AsyncIterator[AssetPayload]:
        """Fetch `url`, into a temporary file if it is large.

        Raises:
            ForbiddenAddress: it must not be fetched.
            FetchError: it cannot be fetched.
            MediaTooLarge: more than the limits allow.
        """
        with PayloadWriter() as exposure:
            try:
                async with asyncio.timeout(self._limits.total_s):
                    film = await self._follow(url, exposure)
            except aiohttp.ClientConnectorError as error:
                if isinstance(error.os_error, _NotPublic):
                    raise ForbiddenAddress("the address is not public") from error
                raise FetchError(_reason(error)) from error
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                raise FetchError(_reason(error)) from error
            yield film

    async def _follow(self, text: str, exposure: PayloadWriter) -> AssetPayload:
        assert self._session is not None  # noqa: S101 (entered before use)
        for _ in range(MAX_REDIRECTS + 1):
            refused = url_rejection(text, allow_private=self._allow_private, ports=self._limits.ports)
            if refused is not None:
                raise ForbiddenAddress(refused)
            url = URL(text)
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status in REDIRECTS and "Location" in answer.headers:
                    # Joined as text, so that what a reader of URLs tidies away is still there to be judged.
                    text = urljoin(str(url), answer.headers["Location"])
                    continue
                if answer.status != 200:  # noqa: PLR2004 (the one status with a body worth having)
                    raise FetchError(f"HTTP {answer.status}")
                return await self._save(answer, exposure)
        raise FetchError(f"more than {MAX_REDIRECTS} redirects")

    async def _save(self, answer: aiohttp.ClientResponse, exposure: PayloadWriter) -> AssetPayload:
        async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
            exposure.add(chunk)
            if exposure.size_bytes > self._limits.most_image_bytes and not _is_video(exposure.head):
                raise MediaTooLarge(FILE_TOO_LARGE)
            if exposure.size_bytes > self._limits.most_video_bytes:
                raise MediaTooLarge(f"more than {self._limits.most_video_bytes // 1024**2} MB")
        return exposure.film()


def _is_video(head: bytes) -> bool:
    known = sniff(head)
    return known is not None and known[0] == "video"


def _reason(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {error.os_error.strerror or error.os_error}"
    # Only the first line, and not all of that: the client quotes what the host sent.
    told = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return told.strip().partition("\n")[0][:MAX_REASON_CHARS].rstrip(" :") or type(error).__name__
