"""Requests and answers over connections that aiohttp opens, keeps and reads: each goes out once, as it is.

Connections, proxies, TLS and the reading of answers are aiohttp's. Its session is left out: it makes each request ready
for redirects, cookies, netrc, middleware and traces, none of which may happen here, and that took more time than all
the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import StreamWriter
from yarl import URL

from lightmeter.client.http_answer import RawAnswer
from lightmeter.errors import OutcomeUnknown

__all__ = ["HttpConnectionPool", "HttpExchange", "Timeouts"]

# An idle connection that the server closes just as we send makes a POST uncertain. Common servers close idle
# ones after 2 s (gunicorn), 5 s (uvicorn, node) or 75 s (nginx); a fresh handshake is cheaper than a held
# credit.
_KEEP_ALIVE_S = 1.5

_WRITTEN_AT_ONCE_BYTES = 256 * 1024

# A timer that is so much late shows that the process was stopped or starved: answers may lie unread in its sockets.
_STALL_S = 1.0
_AFTER_STALL_S = 5.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds, each above 0.

    Attributes:
        connect_s: For a connection with its TLS handshake; passing it means that nothing was sent.
        read_s: For the next bytes of an answer; a synchronous analysis is silent until it is done.
        total_s: For a whole request, from the wait for a connection to the last byte.
    """

    connect_s: float = 10.0
    read_s: float = 120.0
    total_s: float = 180.0


@dataclass(slots=True)
class HttpExchange:
    """One request and the way of its answer.

    Attributes:
        request_line: The request line.
        header_lines: The headers of this request alone, and the empty line that ends the head.
        body: What follows the head.
        max_answer_bytes: Largest answer that is read.
        begun: Whether it has begun to leave; as long as it has not, nothing can have been charged.
        answer: What has come of the answer, whole or not; None before its head has come.
    """

    request_line: bytes
    header_lines: bytes
    body: bytes
    max_answer_bytes: int
    begun: bool = False
    answer: RawAnswer | None = None

    def write(
        self, protocol: ResponseHandler, transport: asyncio.Transport, standing: bytes, patience: _Patience
    ) -> asyncio.Task[None] | None:
        """Write it; what is too long to be written in one go is written by the task that is returned."""
        self.begun = True
        head = self.request_line + standing + self.header_lines
        if len(self.body) <= _WRITTEN_AT_ONCE_BYTES:
            transport.write(head + self.body)
            return None
        transport.write(head)
        return asyncio.create_task(self._write_body(protocol, patience))

    async def _write_body(self, protocol: ResponseHandler, patience: _Patience) -> None:
        """In pieces, each when the one before has left."""
        writer, body = StreamWriter(protocol, asyncio.get_running_loop()), memoryview(self.body)
        for start in range(0, len(body), _WRITTEN_AT_ONCE_BYTES):
            await writer.write(body[start : start + _WRITTEN_AT_ONCE_BYTES])
            await writer.drain()
            patience.renew()

    async def read(self, protocol: ResponseHandler, patience: _Patience) -> RawAnswer:
        """Read the answer that comes."""
        message, payload = await protocol.read()
        while message.code < HTTPStatus.OK and message.code != HTTPStatus.SWITCHING_PROTOCOLS:
            message, payload = await protocol.read()
        headers = {name.lower(): value for name, value in message.headers.items()}
        self.answer = RawAnswer(message.code, headers, b"")
        chunks, size = [], 0
        try:
            while chunk := await payload.readany():
                patience.renew()
                chunks.append(chunk)
                size += len(chunk)
                if size > self.max_answer_bytes:
                    raise OutcomeUnknown(
                        f"The answer is longer than {self.max_answer_bytes} bytes.",
                        hint="It may have been charged.",
                        http_status=message.code,
                    )
        finally:
            self.answer = RawAnswer(message.code, headers, b"".join(chunks))
        return self.answer


class _Patience:
    """Hangs up when nothing has moved for too long, or when it has taken too long as a whole: one timer for both.

    Args:
        transport: Of the connection.
        until: When it has taken too long, by the loop's clock.
        read_s: How long nothing may move.

    Attributes:
        lost: What took too long, once it was given up.
    """

    def __init__(self, transport: asyncio.Transport, until: float, read_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._until = until
        self._read_s = read_s
        self._moved_at = self._loop.time()
        self.lost: str | None = None
        self._timer = self._loop.call_at(self._due(), self._look)

    def _due(self) -> float:
        return min(self._until, self._moved_at + self._read_s)

    def renew(self) -> None:
        """Something has moved."""
        self._moved_at = self._loop.time()

    def _look(self) -> None:
        now, due = self._loop.time(), self._due()
        if now - self._timer.when() > _STALL_S:  # this process stood still: what has come meanwhile is read first
            self._until = max(self._until, now + _AFTER_STALL_S)
            self._moved_at = max(self._moved_at, now + _AFTER_STALL_S - self._read_s)
            due = self._due()
        if now < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        self.lost = "it took too long as a whole" if due == self._until else f"nothing came for {self._read_s:g} s"
        self._transport.abort()

    def end(self) -> None:
        """It is over."""
        self._timer.cancel()


class HttpConnectionPool:
    """Open connections to one address, and what all requests over them have in common."""

    def __init__(
        self, base: URL, headers: Mapping[str, str], timeouts: Timeouts, connections: int, proxy: URL | None
    ) -> None:
        self._connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=_KEEP_ALIVE_S)
        self._like = aiohttp.ClientRequest("GET", base, headers=headers, proxy=proxy, loop=asyncio.get_running_loop())
        self._timeouts = timeouts
        self._connecting = aiohttp.ClientTimeout(connect=timeouts.total_s, sock_connect=timeouts.connect_s)
        plain_proxy = proxy is not None and not self._like.is_ssl()
        self._prefix = (str(base) if plain_proxy else base.raw_path).rstrip("/")
        self._standing = None if plain_proxy else _lines(self._like.headers)

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()

    def target(self, path: str, params: Mapping[str, str] | None) -> str:
        """What stands in the request line; a proxy is told the whole address."""
        if not params:
            return self._prefix + path
        return f"{self._prefix}{path}?{URL.build(query=params).raw_query_string}"

    async def carry(self, exchange: HttpExchange) -> RawAnswer:
        """Send one request over a connection of its own and read its answer.

        Raises:
            TimeoutError: nothing moved for too long, or it took too long as a whole.
            Exception: whatever aiohttp and the system say.
        """
        until = asyncio.get_running_loop().time() + self._timeouts.total_s
        connection = await self._connector.connect(self._like, [], self._connecting)
        protocol, transport = connection.protocol, connection.transport
        assert protocol is not None  # noqa: S101 (a connection that was just taken has both)
        assert transport is not None  # noqa: S101 (likewise)
        patience, writing = _Patience(transport, until, self._timeouts.read_s), None
        try:
            protocol.set_response_params(read_until_eof=True)
            # Before a connection stands, nobody knows what a proxy wants to be told with each request.
            writing = exchange.write(protocol, transport, self._standing or _lines(self._like.headers), patience)
            answer = await exchange.read(protocol, patience)
        except BaseException as error:
            connection.close()
            if patience.lost is not None and isinstance(error, Exception):
                raise TimeoutError(patience.lost) from error
            raise
        finally:
            patience.end()
            whole = writing is None or writing.done()
            if writing is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
        if whole:
            connection.release()
        else:  # answered before all of it was read: what comes next would be taken for its rest
            connection.close()
        return answer


def _lines(headers: Mapping[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("ascii")
