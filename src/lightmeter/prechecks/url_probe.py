"""HTTP client of the pre-checks: finds out whether a URL exists, and what it serves.

The requests come from the user's own machine for the user's own manifest, so private addresses are allowed. Time,
redirects and bytes are bounded. No key and no cookie is sent.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import aiohttp

from lightmeter.errors import FetchError
from lightmeter.http_fetch import (
    CONNECT_TIMEOUT_S,
    FETCH_TIMEOUT_S,
    PARTIAL,
    READ_TIMEOUT_S,
    IncompleteEncoding,
    content_chunks,
    content_codings,
    has_only_a_part,
    open_session,
    request_content,
)
from lightmeter.http_message import parse_http_date, parse_wait_s
from lightmeter.media.media_info import SNIFF_BYTES, sniff
from lightmeter.prechecks.memory_limit import MemoryReservation
from lightmeter.prechecks.robots_rules import USER_AGENT, opt_out_directive
from lightmeter.prechecks.url_verdict import ProbeResponse

HEADER_BYTES: Final = 64 * 1024
"""Number of first bytes of content at a URL that are read before all else: the header of nearly all images fits in."""

_RANGE_REFUSED: Final = frozenset({400, 403, 405, 416, 501})
"""HTTP statuses with which hosts refuse a range of bytes, though they serve the whole content."""

_ONLY_A_PART: Final = "the host sent only a part of the content (HTTP 206)"

_DOWNLOAD_TIMEOUT_S: Final = 300.0
"""Longest time of a download to a file. The service takes less, but its network may be faster than the user's."""

_HEADERS: Final = {"User-Agent": USER_AGENT, "Accept": "image/*, video/*, */*;q=0.5"}


class HostUnavailable(FetchError):
    """The host of a URL does not answer, so requests for other URLs of the host would fail too."""


class NoAnswer(HostUnavailable):
    """The host did not answer in time; it may answer a second request."""


class BrokenTransfer(FetchError):
    """The connection broke during the transfer; a second request may succeed."""


_TRANSLATIONS: Final[tuple[tuple[type[Exception], type[FetchError], str], ...]] = (
    (aiohttp.ClientConnectorDNSError, HostUnavailable, "the host name is not known here"),
    (aiohttp.ClientSSLError, HostUnavailable, "its certificate is not trusted here"),
    (aiohttp.ConnectionTimeoutError, NoAnswer, "no connection in time"),
    (TimeoutError, NoAnswer, "no answer in time"),
    (ValueError, FetchError, "it is no URL that can be fetched"),
)
"""Rows of: exception of a library, exception that is raised in its place, message.

The first row that matches counts. `aiohttp.InvalidURL` is a ValueError.
"""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much of a URL's content the pre-checks read into memory.

    Attributes:
        non_image_bytes: Most bytes that are read of content that does not start like an image.
        image_bytes: Most bytes that are read of content that starts like an image; `non_image_bytes`, if that is more.
    """

    non_image_bytes: int = HEADER_BYTES
    image_bytes: int = 0

    @property
    def most(self) -> int:
        """Most bytes that are read of any content: the larger of the two limits."""
        return max(self.non_image_bytes, self.image_bytes)


class UrlProber:
    """HTTP client of the pre-checks: requests the URLs of manifest rows; an async context manager.

    Args:
        connections: Most connections at the same time.
    """

    def __init__(self, *, connections: int = 8) -> None:
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = open_session(aiohttp.TCPConnector(limit=self._connections), _HEADERS)
        # aiohttp would repeat a request whose connection broke at once; `host_requests` does so after a pause.
        self._session._retry_connection = False  # noqa: SLF001 (there is no option)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def probe(self, url: str, limits: ReadLimits, memory: MemoryReservation | None = None) -> ProbeResponse:
        """Read the first bytes of the content of a URL with a GET request for a range of bytes; return the response.

        If the server refuses the range or sends another range, a second request asks for the whole content.

        Args:
            url: URL of the content.
            limits: Most bytes to read; usually more for an image than for other content.
            memory: Reserves memory for an image longer than `limits.non_image_bytes`; None: nothing is reserved.

        Raises:
            FetchError: there is no response, or its content cannot be decompressed; the message says why, without the
                URL.
        """
        async with self._request(url, FETCH_TIMEOUT_S, Range=f"bytes=0-{limits.most - 1}") as answer:
            part = answer.headers.get("Content-Range", "")
            if answer.status not in _RANGE_REFUSED and (answer.status != PARTIAL or part.startswith("bytes 0-")):
                return await _read_content(answer, limits, memory)
        async with self._request(url, FETCH_TIMEOUT_S) as answer:
            if has_only_a_part(answer):
                raise FetchError(_ONLY_A_PART)
            return await _read_content(answer, limits, memory)

    async def download(self, url: str, path: Path, max_bytes: int) -> ProbeResponse:
        """Download the content of a URL to a file if the HTTP status says that there is content; return the response.

        Args:
            url: URL of the content.
            path: File to write; it is missing or incomplete if the content is too long.
            max_bytes: Longest content, in bytes; if the content is longer, `sha256` of the result is None.

        Raises:
            FetchError: there is no response, or the transfer broke off; the message says why, without the URL.
        """
        async with self._request(url, _DOWNLOAD_TIMEOUT_S) as answer:
            if has_only_a_part(answer):
                raise FetchError(_ONLY_A_PART)
            response = _to_probe_response(answer, 0)
            if not response.ok or (response.size_bytes or 0) > max_bytes:
                return response
            digest, first, size_bytes = hashlib.sha256(), b"", 0
            with _new_file(path) as file:
                async with aclosing(content_chunks(answer)) as chunks:
                    async for chunk in chunks:
                        first = (first + chunk)[:HEADER_BYTES] if len(first) < HEADER_BYTES else first
                        size_bytes += len(chunk)
                        if size_bytes > max_bytes:
                            return replace(response, head=first, content_was_read=True)
                        digest.update(chunk)
                        file.write(chunk)
            return replace(
                response, head=first, content_was_read=True, size_bytes=size_bytes, sha256=digest.hexdigest()
            )

    @asynccontextmanager
    async def _request(self, url: str, total_s: float, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a GET request, follow redirects, and yield the response; every exception becomes a `FetchError`.

        Args:
            url: URL to request.
            total_s: Longest time for the request and its response, in seconds.
            headers: HTTP headers of the request.
        """
        if self._session is None:
            raise RuntimeError("UrlProber is an async context manager: use it with `async with`.")
        timeout = aiohttp.ClientTimeout(
            total=total_s, connect=CONNECT_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S, sock_read=READ_TIMEOUT_S
        )
        try:
            async with request_content(self._session, url, limits=timeout, headers=headers) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _to_fetch_error(error) from error


def _new_file(path: Path) -> BinaryIO:
    """Create and open a file for writing.

    Do not call this in a worker thread: if the caller is cancelled, the thread could create the file after clean-up.
    """
    return path.open("wb")


def _to_fetch_error(error: Exception) -> FetchError:
    """Return a `FetchError` for an exception of the HTTP library; its message holds no URL, which may carry a token."""
    cause = getattr(error, "os_error", None)
    for foreign, ours, words in _TRANSLATIONS:
        if isinstance(error, foreign):
            return ours(words)
    if isinstance(cause, OSError):
        return HostUnavailable(f"no connection ({cause.strerror or type(cause).__name__})")
    return BrokenTransfer(f"the transfer broke off ({type(error).__name__})")


async def _read_content(
    answer: aiohttp.ClientResponse, limits: ReadLimits, memory: MemoryReservation | None
) -> ProbeResponse:
    """Read the first bytes of a response's content; read nothing if the HTTP status says that there is no content.

    `memory` reserves memory for an image longer than `limits.non_image_bytes`; None: nothing is reserved.
    """
    response = _to_probe_response(answer, limits.most)
    if not response.ok:
        return response
    content, limit, is_whole, broke_off = bytearray(), limits.non_image_bytes, True, False
    try:
        async with aclosing(content_chunks(answer)) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) >= limit and limit < limits.most and _is_image(content):
                    limit = limits.most
                    if memory is not None:
                        await memory.reserve(min(limit, response.size_bytes or limit))
                if len(content) >= limit:
                    is_whole = False
                    break
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if not content:
            raise
        # Of a part that was asked for, the compressed data has no end.
        is_whole, broke_off = False, not (answer.status == PARTIAL and isinstance(error, IncompleteEncoding))
    head = bytes(content[:limit])
    codings = content_codings(answer)
    if answer.status == PARTIAL and not codings:
        is_whole = is_whole and response.size_bytes == len(head)
    # Without a length or chunks, a response that was cut off looks like one that ended.
    has_end = "Content-Length" in answer.headers or "chunked" in answer.headers.get("Transfer-Encoding", "").lower()
    return replace(
        response,
        head=head,
        content_was_read=True,
        is_whole=is_whole,
        may_be_cut=is_whole and not has_end,
        broke_off=broke_off,
        size_bytes=len(head) if is_whole else response.size_bytes,
        sha256=hashlib.sha256(head).hexdigest() if is_whole else None,
    )


def _is_image(head: bytes | bytearray) -> bool:
    found = sniff(bytes(head[:SNIFF_BYTES]))
    return found is not None and found[0] == "image"


def _to_probe_response(response: aiohttp.ClientResponse, requested_bytes: int) -> ProbeResponse:
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    etag = response.headers.get("ETag") or response.headers.get("Last-Modified")
    # The host's own clock, if it names it: seconds from 1970 to `Date`.
    now_s = parse_http_date(response.headers.get("Date", "")) or time.time()
    return ProbeResponse(
        response.status,
        content_type,
        _size_bytes(response, requested_bytes),
        str(response.url),
        etag=etag,
        retry_after_s=parse_wait_s(response.headers.get("Retry-After", ""), now_s),
        opt_out=opt_out_directive(response.headers.getall("X-Robots-Tag", ())),
    )


def _size_bytes(response: aiohttp.ClientResponse, requested_bytes: int) -> int | None:
    """Return the length of the whole content in bytes; None if the server does not send it.

    If the response holds only a part, the length of the whole is the last number in `Content-Range` (RFC 9110, section
    14.4). But some servers put the length of the part there. So if the number equals `requested_bytes`, the length of
    the requested part, return None.
    """
    if content_codings(response):
        return None
    if response.status == PARTIAL:
        whole = re.fullmatch(r"bytes \d+-(\d+)/(\d+)", response.headers.get("Content-Range", ""))
        return int(whole[2]) if whole and int(whole[2]) != requested_bytes else None
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None
