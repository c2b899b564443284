"""Requests images and videos at URLs: one set of rules for the pre-checks, for uploads and for the service.

The URL is sent as written, redirects are followed one by one, and the content is decoded here, leniently: what follows
a wrong `Content-Encoding` is often a sound picture.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadHttpMessage
from yarl import URL

from lightmeter.errors import FetchError, ForbiddenAddress
from lightmeter.http_message import MAX_CODINGS, Inflater, ResponseHead, find_inflater, read_head
from lightmeter.http_url import HttpUrl, parse_http_url, resolve_location
from lightmeter.media.media_info import SNIFF_BYTES, sniff

MAX_REDIRECTS: Final = 5
"""A request that is redirected more often fails."""

MAX_HEAD_BYTES: Final = 128 * 1024
"""Maximum size of status line and headers of a response; a larger head makes the request fail."""

MAX_HEADERS: Final = 2000
"""Maximum number of headers of a response."""

MAX_VIDEO_BYTES: Final = 200 * 1024 * 1024
"""Maximum size of a video, after decompression, that the service fetches and the pre-checks download."""

FETCH_TIMEOUT_S: Final = 60.0
"""Longest time to fetch an image, including redirects."""

CONNECT_TIMEOUT_S: Final = 10.0
"""Longest time to resolve a host name and connect."""

READ_TIMEOUT_S: Final = 20.0
"""Longest time without new data from the host."""

CHUNK_BYTES: Final = 64 * 1024
"""Maximum size of the pieces in which content is read."""

PARTIAL: Final = 206
CONTENT_STATUSES: Final = frozenset({200, 203, PARTIAL})
"""HTTP statuses of a response that holds the content; 206 counts only if the part is the whole, or was asked for."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_DECODED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_NOT_DECODED: Final = frozenset({"br", "zstd", "compress", "x-compress"})


class IncompleteEncoding(aiohttp.ClientPayloadError):
    """The content ended before the end of its compressed data."""


class LenientProtocol(ResponseHandler):
    """Protocol of a connection; hands aiohttp heads that it accepts, and limits the size of a response's head."""

    max_head_bytes = MAX_HEAD_BYTES
    _wire: bytearray | None = None  # what has arrived of a response; None if no head is awaited

    def set_response_params(self, **params: Any) -> None:
        """Prepare for the response to the next request; aiohttp calls this before it sends the request."""
        self._wire = bytearray()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Keep bytes back until the head is complete; interim responses and empty lines before it are dropped."""
        if self._wire is None:
            super().data_received(data)
            return
        searched = max(0, len(self._wire) - 3)
        self._wire += data if self._wire else data.lstrip(b"\r\n")
        while (head := read_head(self._wire, searched)) is not None and head.is_interim:
            self._wire, searched = self._wire[head.size :].lstrip(b"\r\n"), 0
        if (len(self._wire) if head is None else head.size) > self.max_head_bytes:
            self.set_exception(BadHttpMessage(f"the headers have more than {self.max_head_bytes:,} bytes"))
            self.close()
        elif head is not None:
            wire, self._wire = bytes(self._wire), None
            super().data_received(self.strict_head(head, wire) + wire[head.size :])

    def strict_head(self, head: ResponseHead, wire: bytes) -> bytes:
        """Return the head for aiohttp. One that contradicts itself stays as in `wire`, so that aiohttp refuses it."""
        return head.to_strict(with_fields=True) if head.is_clear else wire[: head.size]


def set_protocol(connector: aiohttp.TCPConnector, protocol: type[LenientProtocol]) -> None:
    """Give each new connection of `connector` the class `protocol`."""
    factory: Any = partial(protocol, loop=asyncio.get_running_loop())
    connector._factory = factory  # noqa: SLF001 (there is no option)


def open_session(connector: aiohttp.TCPConnector, headers: Mapping[str, str]) -> aiohttp.ClientSession:
    """Return an HTTP client for `request_content`: without cookies, proxies and credentials of the environment.

    `headers` are sent with each request.
    """
    set_protocol(connector, LenientProtocol)
    return aiohttp.ClientSession(
        connector=connector,
        headers={**headers, "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),  # cookies of one host's answers must not be sent for another row
        trust_env=False,
        auto_decompress=False,
        max_line_size=MAX_HEAD_BYTES,
        max_field_size=MAX_HEAD_BYTES,
        max_headers=MAX_HEADERS,
    )


@asynccontextmanager
async def request_content(
    session: aiohttp.ClientSession,
    text: str,
    *,
    limits: aiohttp.ClientTimeout,
    headers: Mapping[str, str] | None = None,
    check: Callable[[HttpUrl], None] = lambda _: None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a GET request, follow up to `MAX_REDIRECTS` redirects, and yield the last response.

    Args:
        session: The HTTP client, made by `open_session`.
        text: The URL. It is sent as written; only characters that no request may contain are percent-encoded.
        limits: Limits of time; `total` is the limit of the whole `with` block.
        headers: Additional headers of the request.
        check: Called with each URL before it is requested; it raises an exception to refuse the URL.

    Raises:
        ForbiddenAddress: the URL, or one that it redirects to, is no http or https URL, or has a user name.
        FetchError: there are too many redirects.
        aiohttp.ClientError, TimeoutError, OSError, ValueError: there is no response.
    """
    async with asyncio.timeout(limits.total):
        for redirects in range(MAX_REDIRECTS + 1):
            try:
                url = parse_http_url(text)
            except ValueError as error:
                how = "redirects to" if redirects else "is"
                raise ForbiddenAddress(f"it {how} no URL that can be fetched: {error}") from error
            check(url)
            # All of the target as the path: yarl would drop the question mark of an empty query.
            sent = URL.build(scheme=url.scheme, authority=url.authority, path=url.target, encoded=True)
            async with session.get(sent, headers=headers, allow_redirects=False, timeout=limits) as response:
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or location is None:
                    yield response
                    return
                text = resolve_location(url, location)
        raise FetchError(f"more than {MAX_REDIRECTS} redirects")


def has_only_a_part(response: aiohttp.ClientResponse) -> bool:
    """Return whether a response to a request without `Range` has the status 206, but not the whole content."""
    part = re.fullmatch(r"bytes 0-(\d+)/(\d+)", response.headers.get("Content-Range", "bytes 0-0/1"))
    return response.status == PARTIAL and (part is None or int(part[1]) + 1 != int(part[2]))


def content_codings(response: aiohttp.ClientResponse) -> list[str]:
    """Return the codings in `Content-Encoding` that change the content, in the order in which they were applied.

    Values that name no compression (`identity`, `none`, `aws-chunked`, `utf-8` and others) are left out.
    """
    names = ",".join(response.headers.getall("Content-Encoding", ())).lower().split(",")
    return [name.strip() for name in names if name.strip() in _DECODED | _NOT_DECODED]


async def content_chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Yield the content of a response in pieces, decompressed.

    Content that is plainly an image or a video is not decompressed, whatever its `Content-Encoding` says. Bytes behind
    the end of compressed data are ignored.

    Raises:
        FetchError: the content cannot be decompressed.
        IncompleteEncoding: the compressed data ends too early; all content before was yielded.
        aiohttp.ClientError, TimeoutError, OSError: the transfer broke off.
    """
    chunks: AsyncIterator[bytes] = response.content.iter_chunked(CHUNK_BYTES)
    codings = content_codings(response)
    if len(codings) > MAX_CODINGS:
        raise FetchError(f"it has more than {MAX_CODINGS} Content-Encodings")
    for coding in reversed(codings):  # the last one was applied last
        first = b""
        async for chunk in chunks:
            first += chunk
            if len(first) >= SNIFF_BYTES:
                break
        chunks = _joined(first, chunks)
        if not first or sniff(first) is not None:
            break
        inflater = find_inflater(first, coding, CHUNK_BYTES)
        if inflater is None and coding in _NOT_DECODED:
            raise FetchError(f"its Content-Encoding {coding} cannot be decoded here")
        if inflater is None:
            break
        chunks = _inflated(chunks, inflater)
    async for chunk in chunks:
        yield chunk


async def _joined(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in chunks:
        yield chunk


async def _inflated(chunks: AsyncIterator[bytes], inflater: Inflater) -> AsyncIterator[bytes]:
    """Yield decompressed data in pieces of at most `CHUNK_BYTES`."""
    async for compressed in chunks:
        try:
            for piece in inflater.pieces(compressed):
                yield piece
                await asyncio.sleep(0)  # a few kilobytes may expand to gigabytes
        except zlib.error as error:
            raise FetchError("its Content-Encoding does not decode") from error
        if inflater.has_rest:
            return
    if not inflater.is_whole:
        raise IncompleteEncoding("The compressed content is not completed.")
