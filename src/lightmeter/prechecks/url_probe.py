"""A look at URLs: are they there, and what lies there? The pre-checks' only door to HTTP.

It is the user's own machine that looks at the user's own manifest, so private addresses are allowed unless refused;
what is bounded is time, redirects and bytes. No key and no cookie is ever sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from lightmeter.errors import FetchError, ForbiddenAddress
from lightmeter.media.media_info import SNIFF_BYTES
from lightmeter.prechecks.url_verdict import ProbeResponse, is_conclusive
from lightmeter.public_addresses import is_public

__all__ = ["MAX_REDIRECTS", "UrlProber"]

MAX_REDIRECTS: Final = 5

_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 20.0
_LOOK_S: Final = 30.0
_DOWNLOAD_S: Final = 300.0
_CHUNK_BYTES: Final = 256 * 1024
_HEADERS: Final = {"User-Agent": "lightmeter", "Accept": "image/*, video/*, */*;q=0.5", "Accept-Encoding": "identity"}


class _NoConnectionError(FetchError):
    """Not even connected: another try with another method would end the same."""


_TRANSLATIONS: Final[tuple[tuple[type[Exception], type[FetchError], str], ...]] = (
    (aiohttp.ClientConnectorDNSError, _NoConnectionError, "the host name is not known here"),
    (aiohttp.ClientSSLError, _NoConnectionError, "its certificate is not trusted here"),
    (aiohttp.ConnectionTimeoutError, _NoConnectionError, "no connection in time"),
    (TimeoutError, FetchError, "no answer in time"),
    (aiohttp.TooManyRedirects, _NoConnectionError, f"more than {MAX_REDIRECTS} redirects"),
    (aiohttp.NonHttpUrlRedirectClientError, _NoConnectionError, "it redirects to no URL that can be fetched"),
    (ValueError, _NoConnectionError, "it is no URL that can be fetched"),
)
"""The first line that fits counts; aiohttp's InvalidURL is a ValueError."""


class UrlProber:
    """Looks at URLs; an async context manager.

    Args:
        allow_private: Whether addresses that are not public may be dialled.
        connections: How many at once.
    """

    def __init__(self, *, allow_private: bool = True, connections: int = 8) -> None:
        self._allow_private = allow_private
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=self._connections,
            # Not a resolver: addresses written in digits never reach one. The socket sees what is dialled.
            socket_factory=_any_socket if self._allow_private else _public_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def head(self, url: str) -> ProbeResponse:
        """Look without fetching: a HEAD request and, where its answer does not settle it, the first bytes.

        Raises:
            FetchError: no answer; the message says why, without the URL.
            ForbiddenAddress: the address is not public, and only public ones are allowed.
        """
        try:
            async with self._request("HEAD", url, _LOOK_S) as response:
                reached = _reached(response)
        except (_NoConnectionError, ForbiddenAddress):
            raise
        except FetchError:
            reached = None  # some servers hang up on HEAD
        if reached is not None and is_conclusive(reached):
            return reached
        async with self._request("GET", url, _LOOK_S, Range=f"bytes=0-{SNIFF_BYTES - 1}") as response:
            return replace(_reached(response), head=await _first_bytes(response, SNIFF_BYTES), content_requested=True)

    async def beginning(self, url: str, most_bytes: int) -> bytes:
        """The first bytes of the content, `most_bytes` at most; none where the status is not one of success.

        A server that does not know ranges sends more: it is not read.

        Raises:
            FetchError: no answer, or the transfer broke off; the message says why, without the URL.
            ForbiddenAddress: the address is not public, and only public ones are allowed.
        """
        async with self._request("GET", url, _LOOK_S, Range=f"bytes=0-{most_bytes - 1}") as response:
            return await _first_bytes(response, most_bytes) if _reached(response).ok else b""

    async def download(self, url: str, path: Path, cap_bytes: int) -> ProbeResponse:
        """Fetch the content into `path`, if the status is one of success.

        `sha256` of the result is None when the content is larger than `cap_bytes`: then `path` holds its beginning
        at most.

        Raises:
            FetchError: no answer, or the transfer broke off; the message says why, without the URL.
            ForbiddenAddress: the address is not public, and only public ones are allowed.
        """
        async with self._request("GET", url, _DOWNLOAD_S) as response:
            reached = _reached(response)
            if not reached.ok or (reached.size_bytes or 0) > cap_bytes:
                return reached
            digest, first, held = hashlib.sha256(), b"", 0
            with await asyncio.to_thread(path.open, "wb") as file:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    first = (first + chunk)[:SNIFF_BYTES] if len(first) < SNIFF_BYTES else first
                    held += len(chunk)
                    if held > cap_bytes:
                        return replace(reached, head=first, content_requested=True)
                    digest.update(chunk)
                    file.write(chunk)
            return replace(reached, head=first, content_requested=True, size_bytes=held, sha256=digest.hexdigest())

    @asynccontextmanager
    async def _request(
        self, method: str, url: str, total_s: float, **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request with its redirects; whatever goes wrong comes out as ours."""
        if self._session is None:
            raise RuntimeError("Reach is an async context manager: use it with `async with`.")
        limits = aiohttp.ClientTimeout(total=total_s, connect=_CONNECT_S, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
        try:
            async with self._session.request(
                method, url, headers=headers, timeout=limits, allow_redirects=True, max_redirects=MAX_REDIRECTS
            ) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _translated(error) from error


def _translated(error: Exception) -> FetchError:
    """A foreign exception as one of ours, in words that hold no URL: it may carry a token."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, _NotPublicError):
        return ForbiddenAddress("its address is not public")
    for foreign, ours, words in _TRANSLATIONS:
        if isinstance(error, foreign):
            return ours(words)
    if isinstance(cause, OSError):
        return _NoConnectionError(f"no connection ({cause.strerror or type(cause).__name__})")
    return FetchError(f"the transfer broke off ({type(error).__name__})")


async def _first_bytes(response: aiohttp.ClientResponse, most: int) -> bytes:
    first = bytearray()
    while len(first) < most and (chunk := await response.content.read(most - len(first))):
        first += chunk
    return bytes(first)


def _reached(response: aiohttp.ClientResponse) -> ProbeResponse:
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    mark = response.headers.get("ETag") or response.headers.get("Last-Modified")
    return ProbeResponse(response.status, content_type, _size_bytes(response), str(response.url), etag=mark)


def _size_bytes(response: aiohttp.ClientResponse) -> int | None:
    """Size of the whole content: of a part, the figure behind the slash (RFC 9110, section 14.4)."""
    if response.status == 206:  # noqa: PLR2004 (partial content)
        whole = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", ""))
        return int(whole[1]) if whole else None
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and "Content-Encoding" not in response.headers else None


class _NotPublicError(OSError):
    """Raised where a socket would be made, so that nothing is dialled."""


def _any_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    return socket.socket(family, kind, protocol)


def _public_socket(address: Any) -> socket.socket:
    if not is_public(address[4][0]):
        raise _NotPublicError("not a public address")
    return _any_socket(address)
