"""Records the bytes of an HTTP response before the HTTP library parses them, and passes them on with a strict head.

A response may have been paid for, so its bytes are kept even if the HTTP library refuses them. The library only gets a
head that it accepts. It still finds the end of the body, and manages the connections.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import aiohttp

from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.http_message import ResponseHead, read_body, read_head

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

MAX_HEAD_BYTES: Final = 1024 * 1024
"""Most bytes of the head of a response. Long policies and tracing headers of proxies take some 64 KB."""


class ResponseRecorder(asyncio.Protocol):
    """Receives the bytes of one HTTP response in place of aiohttp's protocol, records them, and passes them on.

    Args:
        max_bytes: Most bytes of the body. The connection is closed after more.

    Attributes:
        wire: The bytes of the response so far, as received.
        head: The head of the response; None until it is complete.
        is_too_long: Whether the head or the body is longer than allowed.
    """

    def __init__(self, max_bytes: int) -> None:
        self.wire = bytearray()
        self.head: ResponseHead | None = None
        self.is_too_long = False
        self._max_bytes = max_bytes
        self._protocol: ResponseHandler | None = None

    def attach(self, connection: Connection) -> None:
        """Record the bytes that arrive over `connection` from now on.

        If the service has answered before the request is sent, aiohttp has these bytes already, and goes on alone.
        """
        self.wire.clear()
        self.head, self._protocol = None, connection.protocol
        if self._protocol is not None and self._protocol.transport is not None and not self._protocol.should_close:
            self._protocol.transport.set_protocol(self)

    def answer(self) -> RawAnswer | None:
        """Return what has arrived so far as an answer; None if nothing of its body has arrived."""
        wire = bytes(self.wire)
        head = self.head or read_head(wire)
        body = b"" if head is None else read_body(head, wire)
        return RawAnswer(head.status, head.headers, body) if head is not None and (body or head.status) else None

    def data_received(self, data: bytes) -> None:
        """Record bytes of the response and pass them on; see `asyncio.Protocol`."""
        self.wire += data
        if len(self.wire) > MAX_HEAD_BYTES + (0 if self.head is None else self._max_bytes):
            self.is_too_long = True
            if self._protocol is not None and self._protocol.transport is not None:
                self._protocol.transport.abort()
        elif self._protocol is not None and self.head is not None:
            self._protocol.data_received(data)
        elif self._protocol is not None and (head := read_head(bytes(self.wire))) is not None:
            self.head = head
            self._protocol.data_received(head.to_strict() + bytes(self.wire[head.size :]))

    def eof_received(self) -> None:
        """Pass on that the service sends no more bytes; see `asyncio.Protocol`."""
        if self._protocol is not None:
            self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the connection is closed; see `asyncio.Protocol`."""
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on that no more of the request can be sent now; see `asyncio.Protocol`."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that more of the request can be sent; see `asyncio.Protocol`."""
        if self._protocol is not None:
            self._protocol.resume_writing()


PRESENT_RECORDER: Final[ContextVar[ResponseRecorder]] = ContextVar("present_recorder")
"""The recorder of the request that the present task sends."""


class RecordingConnector(aiohttp.TCPConnector):
    """Connects as `aiohttp.TCPConnector`, and lets `PRESENT_RECORDER` record the response."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (as there)
    ) -> Connection:
        """Return a free connection or a new one; see `aiohttp.BaseConnector`."""
        connection = await super().connect(req, traces, timeout)
        PRESENT_RECORDER.get().attach(connection)
        return connection
