"""Fetching what a URL names, from wherever the public may fetch it, and from nowhere else.

The address that is really dialled is checked, on every hop, at the socket: names that resolve to private addresses,
literals in every spelling and redirects all pass through there. Credentials in URLs, other schemes, other ports and
more than three redirects are refused. Sizes are counted on decoded bytes, whatever the headers say.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from lightmeter.errors import FetchError, ForbiddenAddress, MediaTooLarge
from lightmeter.media.facts import SNIFF_BYTES, sniff
from lightmeter.models.vocabulary import FILE_TOO_LARGE, MAX_FILE_BYTES

__all__ = ["PORTS", "FetchLimits", "Fetched", "Fetcher", "is_public", "refuse_url"]

PORTS: Final = frozenset({80, 443})
MOST_REDIRECTS: Final = 3
CHUNK_BYTES: Final = 256 * 1024
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
USER_AGENT: Final = "lightmeter-service"

NEVER: Final = tuple(
    ip_network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "100.64.0.0/10",  # carrier NAT
        "168.63.129.16/32",  # a cloud's host agent, in public space
        "192.88.99.0/24",  # 6to4 relays
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved
        "::/96",  # IPv4-compatible
        "64:ff9b::/96",  # NAT64: any IPv4 address inside
        "64:ff9b:1::/48",
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "fec0::/10",  # old site-local
        "ff00::/8",  # multicast
    )
)
"""Blocks that `is_global` calls public and that are not for fetching from."""


def is_public(address: str) -> bool:
    """Whether an IP address literal is one the public may be fetched from; False for anything that is none."""
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    in_block = any(parsed.version == block.version and parsed in block for block in NEVER)
    return parsed.is_global and not parsed.is_multicast and not in_block


def refuse_url(text: str, *, allow_private: bool, ports: frozenset[int] = PORTS) -> str | None:
    """Why a URL is refused before anything is looked up; None if it is not."""
    try:
        url = URL(text)
    except ValueError:
        return "not a URL"
    if url.scheme not in {"http", "https"} or not url.host:
        return "not an http or https URL"
    if any(letter.isspace() or not letter.isprintable() for letter in url.host):
        return "not a URL"
    if url.user is not None or url.password is not None:
        return "credentials in the URL"
    if not allow_private and url.port not in ports:
        return f"port {url.port} is not fetched from"
    return None


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
        total_s: From the first byte sent to the last one received, on each hop.
        connect_s: For a connection.
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


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that was fetched: where it lies, how large it is, and its first bytes."""

    path: Path
    size_bytes: int
    head: bytes


class Fetcher:
    """Fetches URLs into files that last as long as the block of `fetch`.

    Args:
        allow_private: Also fetch from private addresses and other ports: for one's own machine.
        limits: How far a fetch may go.
    """

    def __init__(self, *, allow_private: bool, limits: FetchLimits = _LIMITS) -> None:
        self._allow_private = allow_private
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        limits = self._limits
        timeout = aiohttp.ClientTimeout(total=limits.total_s, connect=limits.connect_s, sock_read=limits.silence_s)
        connector = aiohttp.TCPConnector(limit=64, socket_factory=self._socket)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),  # one caller's fetch must not show in another's
            headers={"User-Agent": USER_AGENT},
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, where = address
        if not self._allow_private and not self._limits.is_public(str(where[0])):
            raise _NotPublic
        return socket.socket(family=family, type=kind, proto=protocol)

    @asynccontextmanager
    async def fetch(self, url: str) -> AsyncIterator[Fetched]:
        """Fetch `url` into a temporary file.

        Raises:
            ForbiddenAddress: it must not be fetched.
            FetchError: it cannot be fetched.
            MediaTooLarge: more than the limits allow.
        """
        with TemporaryDirectory(prefix="lightmeter-fetch-") as folder:
            try:
                fetched = await self._follow(URL(url), Path(folder) / "fetched")
            except aiohttp.ClientConnectorError as error:
                if isinstance(error.os_error, _NotPublic):
                    raise ForbiddenAddress("the address is not public") from error
                raise FetchError(_reason(error)) from error
            except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
                raise FetchError(_reason(error)) from error
            yield fetched

    async def _follow(self, url: URL, target: Path) -> Fetched:
        assert self._session is not None  # noqa: S101 (entered before use)
        for _ in range(MOST_REDIRECTS + 1):
            refused = refuse_url(str(url), allow_private=self._allow_private, ports=self._limits.ports)
            if refused is not None:
                raise ForbiddenAddress(refused)
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status in REDIRECTS and "Location" in answer.headers:
                    url = url.join(URL(answer.headers["Location"]))
                    continue
                if answer.status != 200:  # noqa: PLR2004 (the one status with a body worth having)
                    raise FetchError(f"HTTP {answer.status}")
                return await self._save(answer, target)
        raise FetchError(f"more than {MOST_REDIRECTS} redirects")

    async def _save(self, answer: aiohttp.ClientResponse, target: Path) -> Fetched:
        size, head = 0, b""
        with target.open("wb") as file:
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                size += len(chunk)
                if len(head) < SNIFF_BYTES:
                    head += chunk[: SNIFF_BYTES - len(head)]
                if size > self._limits.most_image_bytes and not _is_video(head):
                    raise MediaTooLarge(FILE_TOO_LARGE)
                if size > self._limits.most_video_bytes:
                    raise MediaTooLarge(f"more than {self._limits.most_video_bytes // 1024**2} MB")
                file.write(chunk)
        return Fetched(target, size, head)


def _is_video(head: bytes) -> bool:
    known = sniff(head)
    return known is not None and known[0] == "video"


def _reason(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {error.os_error.strerror or error.os_error}"
    return str(error) or type(error).__name__
