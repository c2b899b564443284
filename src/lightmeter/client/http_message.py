"""Reads the head and the body of an HTTP response from its bytes. Pure; no bytes raise an error.

HTTP libraries refuse a whole response for one flaw in its head, such as a long header or two lengths. But a response
may have been paid for. So this module reads what it can, and writes a head without flaws for the HTTP library.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import zstandard

from lightmeter.facts.lenient_json import parse_object_lenient

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS: Final = re.compile(rb"\S+[ \t]+([1-9]\d\d)(?!\d)")
_CHUNK_SIZE: Final = re.compile(rb"(?:\r?\n)?([0-9a-fA-F]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
_LENGTH: Final = re.compile(r"\d{1,15}", re.ASCII)
_PROTOCOL: Final = b"HTTP/"

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZLIB: Final = re.compile(rb"[\x08\x18\x28\x38\x48\x58\x68\x78]")
_ZLIB_CHECK: Final = 31
"""The first two bytes of zlib, as a number, are divisible by this (RFC 1950, section 2.2)."""
_GZIP_BITS, _ZLIB_BITS, _RAW_DEFLATE_BITS = 31, 15, -15
_CHECKSUM_BYTES: Final = 8
"""Bytes of the checksum and length at the end of gzip. They are decoded last, so that a wrong one loses no content."""

_MAX_CODINGS: Final = 4
"""Most compressions, one over the other, that `decode_content` undoes. Some proxies compress compressed bodies."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of an HTTP response.

    Attributes:
        status: The HTTP status; 0 if the first line states none.
        fields: Name in lower case and value of each header, in order.
        size: Number of bytes up to the body, including interim (1xx) responses before this one.
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
    def is_chunked(self) -> bool:
        """Whether the body is sent in chunks (RFC 9112, section 7.1)."""
        return "chunked" in self._joined("transfer-encoding").casefold()

    def to_strict(self) -> bytes:
        """Return a head that HTTP libraries accept: it holds only what tells where the body ends.

        If the head contradicts itself, nobody knows where the response ends. Then the connection is not used again, so
        that no rest of this response becomes a part of the next one.
        """
        lengths = {int(length) for length in _LENGTH.findall(self._joined("content-length"))}
        without_body = self.status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED} and not (
            self.is_chunked or lengths
        )
        lines = [f"HTTP/1.1 {self.status if without_body else 200} OK"]
        if self.is_chunked:
            lines.append("Transfer-Encoding: chunked")
        elif lengths:
            lines.append(f"Content-Length: {max(lengths)}")
        is_clear = self.status > 0 and len(lengths) + self.is_chunked <= 1
        connection = self._joined("connection").casefold()
        is_reusable = "keep-alive" in connection if self.is_http_1_0 else "close" not in connection
        lines.append(f"Connection: {'keep-alive' if is_clear and is_reusable else 'close'}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def _joined(self, name: str) -> str:
        return ", ".join(value for field, value in self.fields if field == name)


def read_head(wire: bytes) -> ResponseHead | None:
    """Return the head of the HTTP response whose first bytes are `wire`; None until the head is complete.

    Interim (1xx) responses are skipped. If no head comes, the whole is the body of a response with the status 0.
    """
    start = 0
    while True:
        while wire[start : start + 1] in (b"\r", b"\n"):  # (some services send an empty line first)
            start += 1
        protocol = wire[start : start + len(_PROTOCOL)].upper()
        if not _PROTOCOL.startswith(protocol):
            return ResponseHead(0, (), start)
        end = _HEAD_END.search(wire, start)
        if end is None:
            return None
        first, *lines = wire[start : end.start()].split(b"\n")
        stated = _STATUS.match(first)
        status = int(stated[1]) if stated else 0
        if not HTTPStatus.CONTINUE <= status < HTTPStatus.OK or status == HTTPStatus.SWITCHING_PROTOCOLS:
            parts = [line.decode("utf-8", "replace").partition(":") for line in lines]
            fields = tuple((name.strip().casefold(), value.strip()) for name, colon, value in parts if colon)
            return ResponseHead(status, fields, end.end(), first.upper().startswith(b"HTTP/1.0"))
        start = end.end()


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


def decode_content(body: bytes, coding: str, max_bytes: int) -> bytes | None:
    """Return the body without compression; None if it is longer than `max_bytes` then.

    The first bytes of the body tell how it is compressed, since the header Content-Encoding may be wrong. What cannot
    be decoded is returned as it came, so that a later version can decode it. Bytes after the compressed ones are
    dropped.

    Args:
        body: The body as received.
        coding: Value of the header Content-Encoding. It only matters for the format `deflate` without a header.
        max_bytes: Most bytes of the decoded body.
    """
    for _ in range(_MAX_CODINGS):
        decoded, is_whole = _decode_once(body, coding, max_bytes)
        if len(decoded) > max_bytes:
            return None
        if not is_whole and parse_object_lenient(decoded) is None:
            return body
        body = decoded
    return body


def _decode_once(body: bytes, coding: str, max_bytes: int) -> tuple[bytes, bool]:
    """Return (decoded bytes, whether they are known to be whole); no bytes if `body` is not compressed.

    Decoding stops soon after `max_bytes` bytes.
    """
    if body.startswith(_GZIP):
        return _inflate(body, _GZIP_BITS, max_bytes)
    if body.startswith(_ZSTD):
        try:
            with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
                return reader.read(max_bytes + 1), False
        except zstandard.ZstdError:
            return b"", False
    if _ZLIB.match(body) and int.from_bytes(body[:2]) % _ZLIB_CHECK == 0:
        return _inflate(body, _ZLIB_BITS, max_bytes)
    return _inflate(body, _RAW_DEFLATE_BITS, max_bytes) if "deflate" in coding.casefold() else (b"", False)


def _inflate(body: bytes, window_bits: int, max_bytes: int) -> tuple[bytes, bool]:
    decoded, rest = bytearray(), body
    while True:
        decoder = zlib.decompressobj(window_bits)
        try:
            for piece in (rest[:-_CHECKSUM_BYTES], rest[-_CHECKSUM_BYTES:]):
                decoded += decoder.decompress(piece, max(1, max_bytes + 1 - len(decoded)))
        except zlib.error:
            return bytes(decoded), False
        rest = decoder.unused_data
        if not rest.startswith(_GZIP) or len(decoded) > max_bytes:  # (gzip may consist of several parts)
            return bytes(decoded), decoder.eof
