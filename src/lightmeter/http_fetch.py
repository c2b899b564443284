"""Requests images and videos at URLs: one set of rules for the pre-checks, for uploads and for the service.

The URL is sent as written, redirects are followed one by one, and the content is decoded here, leniently: what follows
a wrong `Content-Encoding` is often a sound picture.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from math import isfinite
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadHttpMessage
from yarl import URL

from lightmeter.errors import FetchError, ForbiddenAddress
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
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZLIB_METHOD: Final = 8  # in the low half of the first byte of zlib data (RFC 1950)
_DECODED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_NOT_DECODED: Final = frozenset({"br", "zstd", "compress", "x-compress"})
_MAX_CODINGS: Final = 4
_CONTENT_LENGTH: Final = re.compile(rb"^content-length:([^\r\n]*)\r?\n", re.IGNORECASE | re.MULTILINE)
_CHUNKED: Final = re.compile(rb"^transfer-encoding:[^\r\n]*chunked[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


class IncompleteEncoding(aiohttp.ClientPayloadError):
    """The content ended before the end of its compressed data."""


class _LenientResponses(ResponseHandler):
    """Protocol of a connection; accepts what aiohttp's parser refuses, and limits the size of a response's head.

    Several equal `Content-Length` headers count as one (RFC 9110, section 8.6), and with chunks they do not count (RFC
    9112, section 6.3). Different lengths are left to the parser, which refuses them.
    """

    _head: bytearray | None = None  # what has arrived of a head; None if no head is awaited

    def set_response_params(self, **params: Any) -> None:
        """Prepare for the response to the next request; aiohttp calls this before it sends the request."""
        self._head = bytearray()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Keep bytes back until the head is complete."""
        if self._head is None:
            super().data_received(data)
            return
        searched = max(0, len(self._head) - 3)
        self._head += data
        while end := _HEAD_END.search(self._head, searched):
            if self._head[:5] != b"HTTP/" or self._head[8:10] != b" 1":
                break
            del self._head[: end.end()]  # an informational response, such as 103, precedes the response
            searched = 0
        if len(self._head) > MAX_HEAD_BYTES and (end is None or end.end() > MAX_HEAD_BYTES):
            self.set_exception(BadHttpMessage(f"the headers have more than {MAX_HEAD_BYTES:,} bytes"))
            self.close()
        elif end is not None or not self._head.startswith(b"HTTP/"[: len(self._head)]):
            head, self._head = bytes(self._head), None
            split = 0 if end is None else end.end()
            super().data_received(_with_one_length(head[:split]) + head[split:])


def _with_one_length(head: bytes) -> bytes:
    """Return a response's head with at most one `Content-Length`, unless several contradict one another."""
    lengths = {part.strip() for value in _CONTENT_LENGTH.findall(head) for part in value.split(b",")}
    is_chunked = _CHUNKED.search(head) is not None
    if len(lengths) != 1 and not is_chunked:
        return head
    status, newline, headers = _CONTENT_LENGTH.sub(b"", head).partition(b"\n")
    length = b"" if is_chunked else b"Content-Length: " + lengths.pop() + b"\r\n"
    return status + newline + length + headers


def open_session(connector: aiohttp.TCPConnector, headers: Mapping[str, str]) -> aiohttp.ClientSession:
    """Return an HTTP client for `request_content`: without cookies, proxies and credentials of the environment.

    `headers` are sent with each request.
    """
    protocol: Any = partial(_LenientResponses, loop=asyncio.get_running_loop())
    connector._factory = protocol  # noqa: SLF001 (there is no option)
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
    chunks, codings = response.content.iter_chunked(CHUNK_BYTES), content_codings(response)
    if len(codings) > _MAX_CODINGS:
        raise FetchError(f"it has more than {_MAX_CODINGS} Content-Encodings")
    async for chunk in _decoded(chunks, codings):
        yield chunk


async def _decoded(chunks: AsyncIterator[bytes], codings: Sequence[str]) -> AsyncIterator[bytes]:
    """Yield content after undoing its `codings`, the last one first; stop as soon as it is an image or a video."""
    first = b""
    if codings:
        async for chunk in chunks:
            first += chunk
            if len(first) >= SNIFF_BYTES:
                break
        is_plain = sniff(first) is not None or (codings[-1].endswith("gzip") and not first.startswith(_GZIP_MAGIC))
        if first and not is_plain:
            async for chunk in _decoded(_inflated(_joined(first, chunks), codings[-1]), codings[:-1]):
                yield chunk
            return
    async for chunk in _joined(first, chunks):
        yield chunk


async def _joined(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for chunk in chunks:
        yield chunk


async def _inflated(chunks: AsyncIterator[bytes], coding: str) -> AsyncIterator[bytes]:
    """Yield decompressed gzip or deflate data in pieces of at most `CHUNK_BYTES`."""
    if coding in _NOT_DECODED:
        raise FetchError(f"its Content-Encoding {coding} cannot be decoded here")
    decoder = None
    async for compressed in chunks:
        data = compressed
        while data:
            if decoder is None:
                is_headed = coding != "deflate" or data[0] & 0xF == _ZLIB_METHOD
                decoder = zlib.decompressobj(zlib.MAX_WBITS | 32 if is_headed else -zlib.MAX_WBITS)
            elif decoder.eof:
                if not data.startswith(_GZIP_MAGIC):
                    return
                decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)  # a further member of the same file
            try:
                yield decoder.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise FetchError("its Content-Encoding does not decode") from error
            data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            await asyncio.sleep(0)  # a few kilobytes may expand to gigabytes
    if decoder is None or not decoder.eof:
        raise IncompleteEncoding("The compressed content is not completed.")


def parse_wait_s(text: str, now_s: float) -> float | None:
    """Return how many seconds a header such as `Retry-After` asks to wait; None if it holds no number and no date.

    Args:
        text: A number of seconds, or an HTTP date (RFC 9110, section 10.2.3).
        now_s: Present time in seconds since 1970.

    Returns:
        0 or more.
    """
    try:
        wait_s = float(text)
    except ValueError:
        try:
            date = parsedate_to_datetime(text)
            wait_s = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_s
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
    return max(0.0, wait_s) if isfinite(wait_s) else None
