"""Limits the connections of the HTTP server: their number, and the time that a client may take to send a request.

aiohttp limits neither by default. A client that opens connections and sends half a request would take every file
descriptor of the process.
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
"""Maximum line of an HTTP request, above the maximum query, so that the API itself can refuse a longer query."""

READ_BUFFER_BYTES: Final = 64 * 1024
"""Buffer for bytes of a body that the handler has not read yet; from twice this size on, the client has to wait."""

LINGER_S: Final = 2.0
"""Seconds for which the rest of a refused body is read and dropped, so that the client can read the refusal."""

CHECK_INTERVAL_S: Final = 0.5
"""Interval between two checks of the deadlines."""

TOO_MANY: Final = b'{"error":"The service has too many connections. Try again in 2 s.","status":"failed"}'
TOO_MANY_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(TOO_MANY), TOO_MANY)
)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of HTTP connections.

    Attributes:
        max_connections: Maximum number of open connections. Half of the process's file descriptors is a further limit.
        head_s: Seconds from the first byte of a request to the end of its headers.
        idle_s: Seconds for which a connection may stay open without a request, and a client may take to read an answer.
        body_s: Seconds that the body of a request may take to arrive, plus one second for each 128 KiB.
    """

    max_connections: int = 1024
    head_s: float = 20.0
    idle_s: float = 75.0
    body_s: float = 30.0


class Connections:
    """The open HTTP connections of a server.

    A connection waits until its client has sent a whole request. If a new connection exceeds the maximum, the server
    closes the connection that has waited longest. So clients that send no whole request never keep others out.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limits = limits
        self._max_connections = max(1, min(limits.max_connections, descriptors // 2))
        self._open: set[HttpConnection] = set()
        self._waiting: dict[HttpConnection, None] = {}  # ordered: longest first

    def admit(self, connection: HttpConnection) -> bool:
        """Register a new connection. If too many are open, close the one that waits longest for a whole request.

        Return whether it was registered: False if too many are open and each has already sent a whole request.
        """
        if len(self._open) >= self._max_connections:
            if not self._waiting:
                return False
            self._drop(next(iter(self._waiting)))
        self._open.add(connection)
        self._wait(connection)
        return True

    def remove(self, connection: HttpConnection) -> None:
        """Remove a closed connection from the open ones."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    @contextmanager
    def handling(self, request: web.Request) -> Iterator[None]:
        """Suspend the limit on a connection's idle time during the `with` block, which answers its request."""
        connection = request.protocol
        if not isinstance(connection, HttpConnection) or connection not in self._open:
            yield
            return
        self._wait(connection, math.inf)
        connection.request = request
        try:
            yield
        finally:
            connection.request = None
            if connection in self._open:
                self._wait(connection)

    def keep_open(self, request: web.Request) -> None:
        """Record that the body of `request` has arrived: its connection is not closed to make room for a new one."""
        if isinstance(request.protocol, HttpConnection):
            self._waiting.pop(request.protocol, None)

    async def close_late(self) -> None:
        """Close the connections whose deadlines have passed, at regular intervals until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            now_s = loop.time()
            for connection in [each for each in self._waiting if each.deadline_s <= now_s]:
                self._drop(connection)

    def _wait(self, connection: HttpConnection, for_s: float | None = None) -> None:
        self._waiting.pop(connection, None)
        self._waiting[connection] = None
        connection.await_request(self.limits.idle_s if for_s is None else for_s)

    def _drop(self, connection: HttpConnection) -> None:
        self.remove(connection)
        transport = connection.transport
        if transport is None:
            return
        if transport.get_write_buffer_size():  # its client does not read: a regular close would wait for it
            transport.abort()
        else:
            connection.force_close()


class HttpConnection(web.RequestHandler):
    """HTTP connection (aiohttp's) that is closed if no request arrives in time; answers malformed HTTP with JSON.

    Attributes:
        deadline_s: Event-loop time, in seconds, at which the server closes the connection unless the headers of a
            request have arrived.
        request: The request that is being answered; None: no request is being answered.
    """

    def __init__(self, server: web.Server, connections: Connections) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=2 * connections.limits.idle_s,  # `Connections` closes it earlier
            access_log=None,  # type: ignore[arg-type] # as aiohttp documents it
            max_line_size=MAX_LINE_BYTES,
            lingering_time=LINGER_S,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,  # 1 MB of gzip is 1 GB of JSON, and would be decompressed before any check
        )
        self.deadline_s = math.inf
        self.request: web.Request | None = None
        self._awaits_head = False
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

    def await_request(self, for_s: float) -> None:
        """Let the server close the connection unless the first byte of a request arrives within `for_s` seconds.

        Infinity means no deadline.
        """
        self.deadline_s = self._loop.time() + for_s
        self._awaits_head = for_s < math.inf

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the client. Set a deadline when the headers of a request begin.

        If a body is malformed, make its reader fail and close the connection.
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
        """Return the JSON answer to a request that is not valid HTTP; one line is logged.

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
            status, text = 414, QUERY_TOO_LONG
        log.info("malformed HTTP: status=%s %s", status, type(exc).__name__)
        body: dict[str, Any] = {"error": text, "status": "failed"}
        response = web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
        response.force_close()
        return response
