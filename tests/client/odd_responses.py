"""Responses that HTTP libraries refuse or that hide their JSON, and a raw socket server that sends them.

The server imports nothing of lightmeter and no HTTP library, so that it shares none of their assumptions.
"""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zstandard

Wire = Callable[[bytes], list[bytes]]
"""Turns JSON into the pieces in which a response is sent; each piece is sent alone."""


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    """Return the head of a response."""
    return "\r\n".join((status, *lines)).encode("latin-1") + b"\r\n\r\n"


def sent(change: Callable[[bytes], bytes] = bytes, *lines: str, status: str = "HTTP/1.1 200 OK") -> Wire:
    """Return a response with a changed body, its length and some headers."""

    def wire(body: bytes) -> list[bytes]:
        content = change(body)
        return [head(f"Content-Length: {len(content)}", *lines, status=status) + content]

    return wire


def with_field(field: str) -> Wire:
    """Return a response whose JSON has one more field."""
    return sent(lambda body: b"{" + field.encode("latin-1") + b", " + body[1:])


def plain(*lines: str, status: str = "HTTP/1.1 200 OK") -> Wire:
    """Return a response with the JSON as it is, but with these headers only."""
    return lambda body: [head(*lines, status=status) + body]


def deflated(body: bytes) -> bytes:
    """Return raw deflate, without the header of zlib."""
    return zlib.compress(body)[2:-4]


def chunked(body: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """Return a body in chunks of seven bytes."""
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end


def nested(levels: int) -> str:
    """Return a JSON list in a list, many times."""
    return "[" * levels + "]" * levels


READABLE: dict[str, Wire] = {
    "a header of 20 kB": sent(bytes, f"Content-Security-Policy: {'a' * 20_000}"),
    "headers of 64 kB": sent(bytes, *(f"X-{n}: {'a' * 16_000}" for n in range(4))),
    "150 headers": sent(bytes, *(f"X-{n}: a" for n in range(150))),
    "500 headers": sent(bytes, *(f"X-{n}: a" for n in range(500))),
    "a cookie that is none": sent(bytes, 'Set-Cookie: \x01=;"=;;=\xff', "Set-Cookie: a=b\x7f; Expires=never"),
    "NUL in a header": sent(bytes, "X-Trace: a\0b"),
    "a header without a colon": sent(bytes, "this is no header", ": neither", "bad name: 1"),
    "a folded header": sent(bytes, "X-Long: a\r\n  b"),
    "an odd reason": sent(status="HTTP/1.1 200 \xc4\x01\x02"),
    "no reason": sent(status="HTTP/1.1 200"),
    "an unknown version": sent(status="HTTP/3.7 200 OK"),
    "lower case": sent(status="http/1.1 200 ok"),
    "an empty line first": lambda body: [b"\r\n" + sent()(body)[0]],
    "line feeds alone": lambda body: [b"HTTP/1.1 200 OK\nContent-Length: %d\n\n" % len(body) + body],
    "no HTTP at all": lambda body: [body],
    "interim responses": lambda body: [
        head(status="HTTP/1.1 103 Early Hints"),
        head(status="HTTP/1.1 100 Continue") + sent()(body)[0],
    ],
    "HTTP/1.0 without a length": plain(status="HTTP/1.0 200 OK"),
    "a length that is none": plain("Content-Length: many"),
    "the same length twice": lambda body: plain(*[f"Content-Length: {len(body)}"] * 2)(body),
    "the same length twice in one": lambda body: plain(f"Content-Length: {len(body)}, {len(body)}")(body),
    "two lengths": lambda body: [head("Content-Length: 5", f"Content-Length: {len(body)}"), body],
    "a length that is too large": lambda body: plain(f"Content-Length: {len(body) + 9}")(body),
    "a length and chunks": lambda body: [head("Content-Length: 5", "Transfer-Encoding: chunked"), chunked(body)],
    "chunks": lambda body: [head("Transfer-Encoding: chunked"), chunked(body)],
    "chunks without an end": lambda body: [head("Transfer-Encoding: chunked"), chunked(body, b"")],
    "chunks that are none": plain("Transfer-Encoding: chunked"),
    "no content, with content": sent(status="HTTP/1.1 204 No Content"),
    "byte by byte": lambda body: [bytes([byte]) for byte in sent()(body)[0]],
    "gzip that is none": sent(bytes, "Content-Encoding: gzip"),
    "gzip with bytes after it": sent(lambda body: gzip.compress(body) + b"<!-- cache -->", "Content-Encoding: gzip"),
    "gzip in two parts": sent(lambda body: gzip.compress(body[:9]) + gzip.compress(body[9:]), "Content-Encoding: gzip"),
    "gzip without its end": sent(lambda body: gzip.compress(body)[:-8], "Content-Encoding: gzip"),
    "gzip with a wrong checksum": sent(lambda body: gzip.compress(body)[:-8] + bytes(8), "Content-Encoding: gzip"),
    "gzip that is not declared": sent(gzip.compress),
    "gzip twice": sent(lambda body: gzip.compress(gzip.compress(body)), "Content-Encoding: gzip"),
    "deflate": sent(zlib.compress, "Content-Encoding: deflate"),
    "raw deflate": sent(deflated, "Content-Encoding: deflate"),
    "deflate that is none": sent(bytes, "Content-Encoding: deflate"),
    "zstd": sent(zstandard.compress, "Content-Encoding: zstd"),
    "zstd that is none": sent(bytes, "Content-Encoding: zstd"),
    "brotli that is none": sent(bytes, "Content-Encoding: br"),
    "an unknown encoding": sent(bytes, "Content-Encoding: aws-chunked, x-odd"),
    "UTF-16": sent(lambda body: body.decode().encode("utf-16")),
    "UTF-16 without a mark": sent(lambda body: body.decode().encode("utf-16-le")),
    "UTF-16 of the other kind": sent(lambda body: body.decode().encode("utf-16-be")),
    "UTF-32": sent(lambda body: body.decode().encode("utf-32")),
    "UTF-8 with a mark": sent(lambda body: b"\xef\xbb\xbf" + body),
    "Latin-1": with_field('"note": "caf\xe9"'),
    "JSONP": sent(lambda body: b"/**/cb(" + body + b");"),
    "a prefix against scripts": sent(lambda body: b")]}',\n" + body),
    "an endless loop before it": sent(lambda body: b"for(;;);" + body),
    "HTML around it": sent(lambda body: b"<html><body><pre>" + body + b"</pre></body></html>"),
    "a comment after it": sent(lambda body: body + b"\n<!-- cached -->"),
    "in a list": sent(lambda body: b"[" + body + b"]"),
    "in a field": sent(lambda body: b'{"status": "success", "error": null, "data": ' + body + b"}"),
    "in a text": sent(lambda body: json.dumps(body.decode()).encode()),
    "in a text in a field": sent(lambda body: json.dumps({"statusCode": 200, "body": body.decode()}).encode()),
    "an error 1,010 deep": with_field(f'"error_detail": {nested(1010)}'),
    "not a number": with_field('"time": NaN, "other": -Infinity'),
    "an integer of 5,000 digits": with_field(f'"time": {"9" * 5000}'),
    "a field twice": with_field('"note": 1, "note": 2'),
    "half a surrogate pair": with_field(r'"note": "\ud800"'),
    "NUL in a text": with_field('"note": "a\0b"'),
}
"""Responses from which the JSON can be read."""

BROTLI = bytes.fromhex("0b0880") + b'{"credits_paid": 1' + b"\x03"
CUT = b'{"credits_paid": 1, "credits": 41, "all": {"assets": ['

UNREADABLE: dict[str, tuple[list[bytes], bytes]] = {
    "brotli": ([head("Content-Encoding: br", f"Content-Length: {len(BROTLI)}") + BROTLI], BROTLI),
    "a part of gzip": (
        [head("Content-Encoding: gzip") + gzip.compress(CUT * 9)[:60]],
        gzip.compress(CUT * 9)[:60],
    ),
    "a body that is cut": ([head("Content-Length: 900") + CUT], CUT),
    "chunks that are cut": ([head("Transfer-Encoding: chunked"), chunked(CUT, b"")], CUT),
    "a chunk that is cut": ([head("Transfer-Encoding: chunked"), b"99\r\n" + CUT], CUT),
    "an error 100,000 deep": (
        [head() + f'{{"error": {nested(100_000)}}}'.encode()],
        f'{{"error": {nested(100_000)}}}'.encode(),
    ),
    "an error 1,010 deep alone": (
        [head() + f'{{"error": {nested(1010)}}}'.encode()],
        f'{{"error": {nested(1010)}}}'.encode(),
    ),
    "a page": ([head() + b"<html>{}</html>"], b"<html>{}</html>"),
    "a page with an error": (
        [head() + b'<script>x = {"error": "No credits."}</script>'],
        b'<script>x = {"error": "No credits."}</script>',
    ),
    "no bytes of a text": ([head() + b"\xff\xfe\xfd\0\x01"], b"\xff\xfe\xfd\0\x01"),
    "no HTTP": ([b"220 mail.example ESMTP\r\n\r\n"], b"220 mail.example ESMTP\r\n\r\n"),
    "a status that is none": ([head(status="HTTP/1.1 OK") + b"fine"], b"fine"),
    "half a head": ([b"HTTP/1.1 200 OK\r\nContent-Le"], b"HTTP/1.1 200 OK\r\nContent-Le"),
}
"""Responses whose JSON cannot be read, and the bytes that must be kept."""


class RawService:
    """A service that charges each POST one credit, and sends the response to POST n as `wires` tells at place n.

    Args:
        wires: Responses to POST requests, or to polls if `polled`; the last one also for further requests.
        polled: Whether POST requests are only acknowledged.
        balance: Credits of the account.
    """

    def __init__(self, wires: list[Wire], *, polled: bool = False, balance: int = 1000) -> None:
        self.wires, self.polled, self.balance = list(wires), polled, balance
        self.posts = 0
        self.urls: list[str] = []
        self.query: Wire = sent()
        self.base_url = ""

    def respond(self, method: str, path: str, body: bytes) -> list[bytes]:
        """Return the pieces of the response to one request."""
        if path.endswith("/api/credits"):
            return self.query(json.dumps({"credits": self.balance}).encode())
        if path.endswith("/api/backends"):
            offer = {"name": "clarifai", "features": {"tags": 1.0}}
            return self.query(json.dumps({"backends": [offer]}).encode())
        if method == "POST":
            self.posts += 1
            self.balance -= 1
            url = json.loads(body)["url"]
            self.urls.append(url if isinstance(url, str) else url[0])
            number = self.posts
            if self.polled:
                return sent()(json.dumps({"request_id": f"r{number}", "success": True}).encode())
        else:
            number = int(path.rpartition("r")[2])
        return self.wires[min(number, len(self.wires)) - 1](self.answer(self.urls[number - 1]))

    def answer(self, url: str) -> bytes:
        """Return an answer with one tag."""
        asset = {"name": url, "tags": {"cat": [{"name": "cat", "score": 0.9}]}}
        fields: dict[str, Any] = {"credits_paid": 1, "credits": self.balance, "status": "completed"}
        return json.dumps({**fields, "all": {"assets": [asset], "errors": []}}).encode()

    def serve(self, connection: socket.socket) -> None:
        """Answer one request and close the connection."""
        with connection:
            received = b""
            while b"\r\n\r\n" not in received:
                if not (data := connection.recv(65536)):
                    return
                received += data
            first, _, body = received.partition(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in first.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            while len(body) < length:
                body += connection.recv(65536)
            method, path, _ = first.decode().split(" ", 2)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for position, piece in enumerate(self.respond(method, path, body)):
                if position:
                    time.sleep(0.001)  # so that the next piece is read alone
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65536)


@contextmanager
def raw_service(service: RawService) -> Iterator[RawService]:
    """Serve on a free loopback port until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=service.serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield service
        finally:
            listener.shutdown(socket.SHUT_RDWR)
