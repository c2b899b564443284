"""Limits the connections of the HTTP server: their number, and the time that a client may take to send a request.

By default, aiohttp limits neither the number nor the time. Then a client that opens many connections, and sends only
half a request on each, would use up all file descriptors of the process.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from lightmeter.wire.constants import INVALID_FORMAT, QUERY_TOO_LONG, REQUEST_FAILED

log = logging.getLogger("lightmeter.service")

MAX_LINE_BYTES: Final = 64 * 1024
"""Maximum length of a line of an HTTP request.

It is more than the maximum length of a query, so that the API itself can refuse a query that is too long.
"""

MAX_HEADER_BYTES: Final = 8190
"""Maximum length of the name and of the value of a header."""

READ_BUFFER_BYTES: Final = 64 * 1024
"""Size of the buffer for the part of a body that has arrived, but that the handler has not read yet.

If the buffer holds more than twice this many bytes, the client must wait: the server receives no more bytes from it
until the handler has read some.
"""

LINGER_S: Final = 2.0
"""If a body is refused, the server still reads it for this number of seconds, and ignores it.

So the client can send the rest, and then read the refusal.
"""

CHECK_INTERVAL_S: Final = 0.5
"""Seconds between two checks whether deadlines of connections have passed."""

MIN_READ_BYTES_PER_S: Final = 8 * 1024
"""Minimum rate at which a client must read an answer that it does not read within `ConnectionLimits.idle_s`."""

HEADER_TOO_LONG: Final = f"A header is longer than {MAX_HEADER_BYTES} bytes."

TOO_MANY: Final = b'{"error":"The service has too many connections. Try again in 2 s.","status":"failed"}'
TOO_MANY_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(TOO_MANY), TOO_MANY)
)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of HTTP connections.

    Attributes:
        max_connections: Maximum number of open connections. If half of the process's file descriptors is less, this is
            the maximum.
        head_s: Maximum seconds from the first byte of a request to the end of its headers.
        idle_s: Maximum seconds without a request on an open connection. It starts again while a client reads an answer
            at `MIN_READ_BYTES_PER_S` or faster.
        body_s: Maximum seconds until the body of a request has arrived. Each 128 KiB that arrive add one second.
    """

    max_connections: int = 1024
    head_s: float = 20.0
    idle_s: float = 75.0
    body_s: float = 30.0


class Connections:
    """The open HTTP connections of a server.

    A connection counts as waiting, except while the service answers a request of /api/fetch whose body has arrived. If
    a new connection exceeds the maximum, the server closes the connection that has waited longest. So clients that
    never send a whole request do not keep other clients out.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limits = limits
        self._max_connections = max(1, min(limits.max_connections, descriptors // 2))
        self._open: set[HttpConnection] = set()
        self._waiting: dict[HttpConnection, None] = {}  # ordered: longest first

    def admit(self, connection: HttpConnection) -> bool:
        """Register a new connection, and return True. If too many are open, first close the one that waited longest.

        If too many are open and none of them counts as waiting (see `Connections`), return False, and do not register
        the new connection: the caller must refuse it.
        """
        if len(self._open) >= self._max_connections:
            if not self._waiting:
                return False
            self._drop(next(iter(self._waiting)))
        self._open.add(connection)
        self._mark_waiting(connection)
        return True

    def remove(self, connection: HttpConnection) -> None:
        """Remove a closed connection from the list of open connections."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    @contextmanager
    def handling(self, request: web.Request) -> Iterator[None]:
        """Suspend the limit `idle_s` for the connection of `request` during the `with` block, which answers it."""
        connection = request.protocol
        if not isinstance(connection, HttpConnection) or connection not in self._open:
            yield
            return
        self._mark_waiting(connection, math.inf)
        connection.request = request
        try:
            yield
        finally:
            connection.request = None
            if connection in self._open:
                self._mark_waiting(connection)

    def mark_body_received(self, request: web.Request) -> None:
        """Record that the body of `request`, a request of /api/fetch, has arrived.

        Until the request is answered, its connection is not closed to make room for new connections.
        """
        if isinstance(request.protocol, HttpConnection):
            self._waiting.pop(request.protocol, None)

    async def close_late(self) -> None:
        """Close the connections whose deadlines have passed, every `CHECK_INTERVAL_S` seconds, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            now_s = loop.time()
            for connection in [each for each in self._waiting if each.deadline_s <= now_s]:
                if not connection.extend_deadline():
                    self._drop(connection)

    def _mark_waiting(self, connection: HttpConnection, for_s: float | None = None) -> None:
        self._waiting.pop(connection, None)
        self._waiting[connection] = None
        connection.set_deadline(self.limits.idle_s if for_s is None else for_s)

    def _drop(self, connection: HttpConnection) -> None:
        self.remove(connection)
        transport = connection.transport
        if transport is None:
            return
        if transport.get_write_buffer_size():  # its client does not read: a regular close would wait for it
            transport.abort()
        else:
            connection.force_close()


def ignore_unknown_expectations(server: web.Server) -> None:
    """Make an HTTP server handle requests with a header such as `Expect: foo` as if they had no such header.

    RFC 9110, section 10.1.1, allows this. aiohttp would answer them with plain text, before any middleware runs.
    """
    handle = server.request_handler

    async def handle_request(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            others = [(name, value) for name, value in request.headers.items() if name.lower() != "expect"]
            request = request.clone(headers=others)
        return await handle(request)

    server.request_handler = handle_request


class HttpConnection(web.RequestHandler):
    """An HTTP connection of aiohttp, with two additions.

    The server closes the connection if no request arrives in time. It answers malformed HTTP with JSON.

    Attributes:
        deadline_s: Event-loop time, in seconds. If the headers of a request have not arrived at this time, the server
            closes the connection.
        request: The request that is being answered; None: no request is being answered.
    """

    def __init__(self, server: web.Server, connections: Connections) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=2 * connections.limits.idle_s,  # `Connections` closes it earlier
            access_log=None,  # type: ignore[arg-type] # as aiohttp documents it
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,  # 1 MB of gzip is 1 GB of JSON, and would be decompressed before any check
        )
        self.deadline_s = math.inf
        self.request: web.Request | None = None
        self._awaits_head = False
        self._unsent_bytes = 0
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; refuse it with status 503 if too many are open."""
        super().connection_made(transport)
        if not self._connections.admit(self) and self.transport is not None:
            self.transport.write(TOO_MANY_RESPONSE)
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove the closed connection from `Connections`."""
        self._connections.remove(self)
        super().connection_lost(exc)

    def set_deadline(self, for_s: float) -> None:
        """Set a deadline: if no byte of a request arrives within `for_s` seconds, the server closes the connection.

        If `for_s` is infinity, there is no deadline.
        """
        self.deadline_s = self._loop.time() + for_s
        self._awaits_head = for_s < math.inf

    def pause_writing(self) -> None:
        """Record how much of a large answer is not sent yet, because the client must read the first part of it."""
        super().pause_writing()
        self._unsent_bytes = self._count_unsent_bytes()

    def extend_deadline(self) -> bool:
        """Extend the deadline by `idle_s` if the client reads an answer at the minimum rate; return whether it does."""
        unsent, idle_s = self._count_unsent_bytes(), self._connections.limits.idle_s
        if not (self._awaits_head and unsent and self._unsent_bytes - unsent >= idle_s * MIN_READ_BYTES_PER_S):
            return False
        self._unsent_bytes = unsent
        self.deadline_s = self._loop.time() + idle_s
        return True

    def _count_unsent_bytes(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the client. When the first byte of a request arrives, set the deadline for its headers.

        If a body is malformed, the handler that reads it gets an error, and the connection is closed.
        """
        if self._awaits_head:
            self._awaits_head = False
            self.deadline_s = self._loop.time() + self._connections.limits.head_s
        super().data_received(data)
        if self.request is not None and self._messages and not self.request.content.is_eof():
            # Only the parser's error can follow an unfinished body. aiohttp would let the reader of the body wait.
            self.request.content.set_exception(web.RequestPayloadError("The body is malformed."))
            self.request.content.feed_eof()
            self.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (aiohttp's own signature)
    ) -> web.StreamResponse:
        """Return the JSON answer to a request that is not valid HTTP, and log one line.

        Args:
            request: Placeholder that aiohttp creates, because no request could be parsed.
            status: HTTP status.
            exc: Error of the HTTP parser.
            message: Text of the parser's error; not used, because it contains parts of the request.
        """
        if request.writer.output_size > 0:
            raise ConnectionError("An answer was sent already.")
        text = INVALID_FORMAT if status < 500 else f"{REQUEST_FAILED}: {type(exc).__name__}."  # noqa: PLR2004
        if isinstance(exc, LineTooLong):
            is_header = exc.args[1] == MAX_HEADER_BYTES
            status, text = (431, HEADER_TOO_LONG) if is_header else (414, QUERY_TOO_LONG)
        log.info("malformed HTTP: status=%s %s", status, type(exc).__name__)
        body: dict[str, Any] = {"error": text, "status": "failed"}
        response = web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
        response.force_close()
        return response
