"""Records the bytes of an HTTP response before the HTTP library parses them.

A response may have been paid for, so its bytes are kept even if the HTTP library refuses them. The library gets a head
that it accepts. It still finds the end of the body, and manages the connections.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

from lightmeter.client.http_answer import RawAnswer
from lightmeter.http_fetch import LenientProtocol, set_protocol
from lightmeter.http_message import ResponseHead, read_body

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


@dataclass(slots=True)
class ResponseRecorder:
    """What has arrived of one HTTP response.

    Attributes:
        max_bytes: Most bytes of the body. The connection is closed after more.
        wire: The bytes of the response so far, as received; once its head is complete, without what was before it.
        head: The head of the response; None until it is complete.
        is_too_long: Whether the head or the body is longer than allowed.
    """

    max_bytes: int
    wire: bytearray = field(default_factory=bytearray)
    head: ResponseHead | None = None
    is_too_long: bool = False

    def answer(self) -> RawAnswer | None:
        """Return what has arrived so far as an answer; None if nothing of its body has arrived."""
        if self.head is None:
            return None
        body = read_body(self.head, bytes(self.wire))
        return RawAnswer(self.head.status, self.head.headers, body) if body or self.head.status else None


class RecordingProtocol(LenientProtocol):
    """Protocol of a connection; records the bytes of each response before aiohttp may refuse them."""

    max_head_bytes = 1024 * 1024  # long policies and tracing headers of proxies take some 64 KB
    recorder: ResponseRecorder | None = None

    def data_received(self, data: bytes) -> None:
        """Record bytes of the response and pass them on; see `asyncio.Protocol`."""
        if self.recorder is None:  # an HTTP proxy answers the request for a tunnel
            ResponseHandler.data_received(self, data)
            return
        self.recorder.wire += data
        limit = self.max_head_bytes + (0 if self.recorder.head is None else self.recorder.max_bytes)
        self.recorder.is_too_long = len(self.recorder.wire) > limit
        if not self.recorder.is_too_long:
            super().data_received(data)
        elif self.transport is not None:
            self.transport.abort()

    def strict_head(self, head: ResponseHead, wire: bytes) -> bytes:
        """Return a head that aiohttp accepts, whatever the head of the response is."""
        if self.recorder is not None:
            self.recorder.head, self.recorder.wire = head, bytearray(wire)
        return head.to_strict()


PRESENT_RECORDER: Final[ContextVar[ResponseRecorder]] = ContextVar("present_recorder")
"""The recorder of the request that the present task sends."""


class RecordingConnector(aiohttp.TCPConnector):
    """Connects as `aiohttp.TCPConnector`, and lets `PRESENT_RECORDER` record the response."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        set_protocol(self, RecordingProtocol)

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 (as there)
    ) -> Connection:
        """Return a free connection or a new one; see `aiohttp.BaseConnector`."""
        connection = await super().connect(req, traces, timeout)
        if isinstance(connection.protocol, RecordingProtocol):
            connection.protocol.recorder = recorder = PRESENT_RECORDER.get()
            recorder.wire, recorder.head = bytearray(), None  # aiohttp may send a GET once more
        return connection
