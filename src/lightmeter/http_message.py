"""Reads the head and the body of an HTTP response from its bytes, leniently. Pure; imports no HTTP library.

HTTP libraries refuse a whole response for one flaw in its head, such as a long header or two lengths. But a response
may have been paid for, or hold a sound picture. So this module reads what it can, and writes a head without flaws for
the HTTP library.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite
from typing import Final

MAX_CODINGS: Final = 4
"""Most compressions, one over the other, that are undone. Some proxies compress compressed bodies."""

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS: Final = re.compile(rb"\S+[ \t]+([1-9]\d\d)(?!\d)")
_CHUNK_SIZE: Final = re.compile(rb"(?:\r?\n)?([0-9a-fA-F]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_LENGTH: Final = re.compile(r"\d{1,15}", re.ASCII)
_PROTOCOL: Final = b"HTTP/"
_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection", "upgrade"})
_STRICT_FIELD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+: [^\0-\x08\x0a-\x1f\x7f]*")
"""A header of RFC 9110, section 5, with its name in lower case."""

_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = re.compile(rb"[\x08\x18\x28\x38\x48\x58\x68\x78]")
_ZLIB_CHECK: Final = 31
"""The first two bytes of zlib, as a number, are divisible by this (RFC 1950, section 2.2)."""
_GZIP_BITS, _ZLIB_BITS, _RAW_DEFLATE_BITS = 31, 15, -15

_MAX_WAIT_S: Final = 1e10  # so that the end of the wait is a date of `datetime`


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of an HTTP response.

    Attributes:
        status: The HTTP status; 0 if the first line states none.
        fields: Name in lower case and value of each header, in order; bytes are decoded as Latin-1.
        size: Number of bytes up to the body.
        is_http_1_0: Whether the service speaks HTTP/1.0.
    """

    status: int
    fields: tuple[tuple[str, str], ...]
    size: int
    is_http_1_0: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Header values by lowercase name. If a header occurs more than once, its last value."""
        return dict(self.fields)

    @property
    def is_interim(self) -> bool:
        """Whether the response to the request is still to come (RFC 9110, section 15.2)."""
        return HTTPStatus.CONTINUE <= self.status < HTTPStatus.OK and self.status != HTTPStatus.SWITCHING_PROTOCOLS

    @property
    def is_chunked(self) -> bool:
        """Whether the body is sent in chunks (RFC 9112, section 7.1)."""
        return "chunked" in self._joined("transfer-encoding").casefold()

    @property
    def is_clear(self) -> bool:
        """Whether there is a status, and one way to tell where the body ends.

        Equal lengths count as one (RFC 9110, section 8.6), and lengths beside chunks do not count (RFC 9112, section
        6.3).
        """
        is_length = len(self._lengths) <= 1 and all(map(_LENGTH.fullmatch, self._lengths))
        return self.status > 0 and (self.is_chunked or is_length)

    def to_strict(self, *, with_fields: bool = False) -> bytes:
        """Return a head that HTTP libraries accept.

        If the head contradicts itself, nobody knows where the response ends. Then the connection is not used again, so
        that no rest of this response becomes a part of the next one.

        Args:
            with_fields: Whether the head has the status and all valid headers. If not, it holds only what tells where
                the body ends, so that no status and no header keeps the library from reading the body.
        """
        lengths = {int(length) for length in self._lengths if _LENGTH.fullmatch(length)}
        without_body = self.status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED} and not (
            self.is_chunked or lengths
        )
        lines = [f"HTTP/1.1 {self.status if with_fields or without_body else 200} OK"]
        if self.is_chunked:
            lines.append("Transfer-Encoding: chunked")
        elif lengths:
            lines.append(f"Content-Length: {max(lengths)}")
        connection = self._joined("connection").casefold()
        is_reusable = "keep-alive" in connection if self.is_http_1_0 else "close" not in connection
        is_reusable = is_reusable and self.is_clear and not (self.is_chunked and lengths)
        lines.append(f"Connection: {'keep-alive' if is_reusable else 'close'}")
        if with_fields:
            fields = (f"{name}: {value}" for name, value in self.fields if name not in _FRAMING)
            lines.extend(filter(_STRICT_FIELD.fullmatch, fields))
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    @property
    def _lengths(self) -> set[str]:
        return {part.strip() for part in self._joined("content-length").split(",")} - {""}

    def _joined(self, name: str) -> str:
        return ", ".join(value for field, value in self.fields if field == name)


def read_head(wire: bytes | bytearray, searched: int = 0) -> ResponseHead | None:
    """Return the head of the HTTP response whose first bytes are `wire`; None until the head is complete.

    If no head comes, the whole is the body of a response with the status 0.

    Args:
        wire: The first bytes, without empty lines before the head.
        searched: Number of bytes that are known to hold no end of the head.
    """
    if not _PROTOCOL.startswith(bytes(wire[: len(_PROTOCOL)]).upper()):
        return ResponseHead(0, (), 0)
    end = _HEAD_END.search(wire, searched)
    if end is None:
        return None
    first, *lines = bytes(wire[: end.start()]).split(b"\n")
    stated = _STATUS.match(first)
    parts = [line.decode("latin-1").partition(":") for line in lines]
    fields = tuple((name.strip().lower(), value.strip(" \t\r")) for name, colon, value in parts if colon)
    return ResponseHead(int(stated[1]) if stated else 0, fields, end.end(), first.upper().startswith(b"HTTP/1.0"))


def read_body(head: ResponseHead, wire: bytes) -> bytes:
    """Return the body in the bytes of a response, `wire`, whether or not the response is complete.

    If it is not sent in chunks, although the head says so, the body is returned as it is.
    """
    if not head.is_chunked:
        return wire[head.size :]
    pieces, at = [], head.size
    while chunk := _CHUNK_SIZE.match(wire, at):
        size = int(chunk[1], 16)
        if size == 0:
            break
        at = chunk.end() + size
        pieces.append(wire[chunk.end() : at])
    else:
        pieces.append(wire[at:].removeprefix(b"\r\n"))
    return b"".join(pieces)


class Inflater:
    """Decompresses gzip, zlib or raw deflate that arrives in parts.

    Gzip may consist of several members (RFC 1952, section 2.2). Bytes behind the end are ignored.

    Args:
        window_bits: Format of the data, as for `zlib.decompressobj`.
        piece_bytes: Most bytes that are decompressed at once.

    Attributes:
        has_rest: Whether bytes behind the end have come.
    """

    def __init__(self, window_bits: int, piece_bytes: int) -> None:
        self._window_bits, self._piece_bytes = window_bits, piece_bytes
        self._decoder = zlib.decompressobj(window_bits)
        self.has_rest = False

    @property
    def is_whole(self) -> bool:
        """Whether the end of the compressed data has come."""
        return self._decoder.eof

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next part of the compressed data holds; raise `zlib.error` if it cannot be decompressed."""
        is_full = False
        while (data or is_full) and not self.has_rest:
            if not self._decoder.eof:
                yield (piece := self._decoder.decompress(data, self._piece_bytes))
                data = self._decoder.unused_data or self._decoder.unconsumed_tail
                # the decoder may hold more of a match, although it has read all
                is_full = len(piece) == self._piece_bytes and not self._decoder.eof
            elif _GZIP.startswith(data[: len(_GZIP)]):
                self._decoder = zlib.decompressobj(self._window_bits)
            else:
                self.has_rest = True


def find_inflater(first: bytes, coding: str, piece_bytes: int) -> Inflater | None:
    """Return what decompresses a body; None if the body is not compressed with gzip or deflate.

    Args:
        first: The first bytes of the body. They tell how it is compressed, since the header may be wrong.
        coding: Value of the header Content-Encoding. It only matters for the format `deflate` without a header.
        piece_bytes: Most bytes that are decompressed at once.
    """
    if first.startswith(_GZIP):
        return Inflater(_GZIP_BITS, piece_bytes)
    if _ZLIB.match(first) and int.from_bytes(first[:2]) % _ZLIB_CHECK == 0:
        return Inflater(_ZLIB_BITS, piece_bytes)
    return Inflater(_RAW_DEFLATE_BITS, piece_bytes) if "deflate" in coding.casefold() else None


def parse_http_date(text: str) -> float | None:
    """Return an HTTP date (RFC 9110, section 5.6.7) as seconds since 1970; None if it is none."""
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def parse_wait_s(text: str, now_s: float | None) -> float | None:
    """Return how many seconds a header such as `Retry-After` asks to wait; None if it holds no number and no date.

    Args:
        text: A number of seconds, or an HTTP date (RFC 9110, section 10.2.3).
        now_s: Present time in seconds since 1970; None if it is not known. Then a date is ignored.

    Returns:
        0 to 1e10.
    """
    try:
        wait_s = float(text)
    except ValueError:
        date = parse_http_date(text)
        if date is None or now_s is None:
            return None
        wait_s = date - now_s
    return min(max(0.0, wait_s), _MAX_WAIT_S) if isfinite(wait_s) else None
