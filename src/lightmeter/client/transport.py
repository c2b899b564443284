"""Sends one HTTP request to the service and returns the raw answer.

The contract has no idempotency key, so two failures must never be confused: *nothing was sent* (safe to send again) and
*something may have been sent* (it may have been charged). Hence no retry of a POST, no redirects, no netrc, no cookies,
and no proxy unless one is requested. The API key goes to the configured address and nowhere else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Final, Self

import aiohttp
from pydantic import SecretStr
from yarl import URL

from lightmeter.client.base_url import normalize_base_url
from lightmeter.client.http_answer import RawAnswer, decode_content
from lightmeter.client.proxy import proxy_url
from lightmeter.client.response_recorder import PRESENT_RECORDER, RecordingConnector, ResponseRecorder
from lightmeter.errors import OutcomeUnknown, SettingsError, Unreachable, UsageError
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.http_message import ResponseHead
from lightmeter.redaction import has_credentials
from lightmeter.telemetry import trace_headers
from lightmeter.wire.constants import AUTH_HEADER

_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of an answer's body, before and after content decoding; a longer body raises `OutcomeUnknown`.

One asset usually takes some 6 KB.
"""

_TOO_LONG: Final = "the answer is longer than {} bytes"

_KEEP_ALIVE_S: Final = 1.5
"""Seconds for which an idle connection is kept open for the next request.

If the server closes an idle connection just as a POST is sent over it, the outcome is unknown. Common servers close
idle connections after 2 s (gunicorn), 5 s (uvicorn, node) or 75 s (nginx). A new handshake costs less than credits that
stay reserved for a request with an unknown outcome.
"""

_PIECE_BYTES: Final = 256 * 1024
"""Request bodies of more bytes than this are sent in pieces of this size, so that the event loop stays responsive."""

_CONNECT_MARGIN_S: Final = 0.25
"""Seconds added to the time limit of a whole exchange, so that the time limit for connecting always expires first.

Only the time limit for connecting proves that nothing was sent.
"""

_NOTHING_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)
"""Exceptions that aiohttp raises only before it writes a request, when it opens a connection."""

_HINTS: Final = {"GET": "Asking again is free.", "POST": "It may have been charged."}
"""Method → hint of the error for a request that was sent and got no whole answer."""

_STALL_S: Final = 1.0
"""If a timer fires more than this many seconds late, the process was suspended or got too little processor time."""

_AFTER_STALL_S: Final = 5.0
"""Seconds by which a time limit is extended if its timer fires more than `_STALL_S` seconds late.

Answers that arrived in the meantime are then read from their sockets before the time limit expires.
"""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of one HTTP exchange, in seconds, each above 0.

    Attributes:
        connect_s: Limit for opening a connection, including the TLS handshake. When it expires, nothing was sent.
        read_s: Limit for the next bytes of an answer to arrive. The service sends nothing while it analyzes an image.
        total_s: Limit for the whole exchange, from opening a connection to the last byte of the answer.

    Waiting until one of the transport's connections is free counts against none of them.
    """

    connect_s: float = 10.0
    read_s: float = 120.0
    total_s: float = 180.0


@asynccontextmanager
async def _stall_tolerant_timeout(delay_s: float, message: str) -> AsyncIterator[Callable[[float], None]]:
    """Raise `TimeoutError` if the `with` block takes too long, as `asyncio.timeout` does, but tolerate a suspension.

    When a suspended process (SIGSTOP, a sleeping laptop) continues, all timers expire at once, although the sockets may
    hold unread answers. So a time limit whose timer fires late is extended by a few seconds.

    Args:
        delay_s: Seconds that the block may take.
        message: Text of the `TimeoutError`.

    Yields:
        A function that restarts the time limit. Its argument is the number of seconds that the block may take from now.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def on_timer() -> None:
        nonlocal timer
        now = loop.time()
        if now - timer.when() > _STALL_S:
            timer = loop.call_at(now + _AFTER_STALL_S, on_timer)
        else:
            scope.reschedule(now)  # the time has passed: this cancels the block

    def restart(delay_s: float) -> None:
        nonlocal timer
        timer.cancel()
        timer = loop.call_later(delay_s, on_timer)

    timer = loop.call_later(delay_s, on_timer)
    try:
        async with asyncio.timeout(None) as scope:
            yield restart
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise TimeoutError(message) from error
    finally:
        timer.cancel()


class Transport:
    """Sends HTTP requests to one service, over a pool of connections.

    Args:
        base_url: Address of the service: http or https, with a host, and a path if it has one.
        api_key: API key of the account; with None, requests are sent without a key.
        timeouts: Time limits of an exchange; the defaults of `Timeouts` if None.
        connections: Maximum number of open connections; further requests wait for a free one before anything is sent.
        proxy: Address of an HTTP proxy, or `PROXY_FROM_ENVIRONMENT` to use the one that HTTPS_PROXY or HTTP_PROXY
            names. None means no proxy, even if the environment names one.

    Raises:
        SettingsError: the base URL, the key, the number of connections or the proxy is invalid.
    """

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | str | None = None,
        timeouts: Timeouts | None = None,
        connections: int = 64,
        *,
        proxy: str | None = None,
    ) -> None:
        self.base_url: Final = normalize_base_url(base_url)
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        _check_key(self._api_key)
        if connections < 1:
            raise SettingsError(f"connections: {connections} is too few: at least 1 is needed.")
        self._timeouts = timeouts or Timeouts()
        self._connections = connections
        self._proxy = None if proxy is None else proxy_url(proxy, URL(self.base_url))
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Transport({self.base_url!r})"

    async def __aenter__(self) -> Self:
        limits = self._timeouts
        self._free_connections = asyncio.Semaphore(self._connections)  # (a semaphore belongs to one event loop)
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": _user_agent()}
        if self._api_key is not None:
            headers[AUTH_HEADER] = f"Token {self._api_key.get_secret_value()}"
        self._session = aiohttp.ClientSession(
            connector=RecordingConnector(limit=self._connections, keepalive_timeout=_KEEP_ALIVE_S),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=self._proxy,
            timeout=aiohttp.ClientTimeout(
                connect=limits.total_s,
                sock_connect=limits.connect_s,
                ceil_threshold=math.inf,  # (aiohttp rounds long timeouts up to whole seconds otherwise)
            ),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> RawAnswer:
        """Send one request and read the whole answer; a POST is sent at most once.

        Args:
            method: `GET` or `POST`.
            path: Path under the base URL, starting with a slash, percent-encoded where necessary.
            body: JSON, as bytes; None sends no body.
            headers: Headers in addition to the default ones.

        Raises:
            UsageError: the path or a header holds a character that is not allowed there, or the method was called
                outside `async with`; nothing was sent.
            Unreachable: no connection was made, so nothing was sent.
            OutcomeUnknown: no complete answer came: the connection was lost, or the answer was too slow, too long or
                malformed.
        """
        session = self._session
        if session is None:
            raise UsageError("The client is not open.", hint="Use it in a block: async with Client(…) as client.")
        for text in (path, *(headers or {}).values()):
            if not (text.isascii() and text.isprintable()):  # a line break, for example, would add headers
                raise UsageError("The request holds a character that no address and no header may have.")
        url = URL(self.base_url + path, encoded=True)
        # Without Content-Length, aiohttp would send a large body in chunks.
        content = {} if body is None else {"Content-Type": "application/json", "Content-Length": str(len(body))}
        recorder = ResponseRecorder(_MAX_ANSWER_BYTES)
        token = PRESENT_RECORDER.set(recorder)
        try:
            async with self._free_connections:  # before any time limit starts
                answer = await self._exchange(
                    session, method, url, body, {**content, **(headers or {}), **trace_headers()}, recorder
                )
            return _decoded(answer)
        except Exception as error:  # noqa: BLE001 (each of them becomes one of two errors)
            with suppress(ValueError):
                partial = recorder.answer()
                # a JSON object is complete once it is closed, however its connection ended
                if partial is not None and parse_object_lenient((whole := _decoded(partial)).body) is not None:
                    return whole
            failure = self._translate_error(error, method, path, recorder)
            # the error of a proxy names it with its password
            raise failure from None if has_credentials(str(error)) else error
        finally:
            PRESENT_RECORDER.reset(token)

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: URL,
        body: bytes | None,
        headers: dict[str, str],
        recorder: ResponseRecorder,
    ) -> RawAnswer:
        """Send one request and return its answer as received, within the limits of time and size.

        Args:
            session: The open pool of connections to the service.
            method: `GET` or `POST`.
            url: The whole address.
            body: JSON, as bytes; None sends no body.
            headers: The headers of this request; `session` adds those that all its requests have.
            recorder: Receives the bytes of the answer as they arrive, so that they are not lost if an error occurs.
        """
        limits = self._timeouts
        # aiohttp opens the connection within this time too; if that takes too long, its own error proves it.
        first_byte_s = limits.read_s + min(limits.connect_s, limits.read_s)
        async with (
            _stall_tolerant_timeout(limits.total_s + _CONNECT_MARGIN_S, "it took too long as a whole"),
            _stall_tolerant_timeout(first_byte_s, f"nothing came for {limits.read_s:g} s") as restart,
            session.request(
                method,
                url,
                data=None if body is None else _payload(body, lambda: restart(limits.read_s)),
                headers=headers,
                allow_redirects=False,
            ) as response,
        ):
            chunks = []
            restart(limits.read_s)
            while chunk := await response.content.readany():
                restart(limits.read_s)
                chunks.append(chunk)
        # Without a head of its own, the response came over no connection: recorded tests replace the session.
        received = tuple((name.lower(), value) for name, value in response.headers.items())
        head = recorder.head or ResponseHead(response.status, received, 0)
        if not head.status or recorder.is_too_long:
            raise ValueError("it does not begin as HTTP, or is too long")
        return RawAnswer(head.status, head.headers, b"".join(chunks))

    def _translate_error(
        self, error: Exception, method: str, path: str, recorder: ResponseRecorder
    ) -> Unreachable | OutcomeUnknown:
        """Return the exception to raise for a failed exchange; an `OutcomeUnknown` holds the bytes received so far.

        Args:
            error: What the HTTP library or this class has raised.
            method: `GET` or `POST`.
            path: Path of the request, such as `/api/credits`, for the message.
            recorder: Holds the bytes of the answer that have arrived.
        """
        reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        if isinstance(error, _NOTHING_SENT):
            return Unreachable(f"{self.base_url} cannot be reached: {reason}.", hint="Nothing was sent.")
        if recorder.is_too_long:
            reason = _TOO_LONG.format(_MAX_ANSWER_BYTES)
        partial = recorder.answer()
        unknown = OutcomeUnknown(
            f"No whole answer to {method} {path}: {reason}.",
            hint=_HINTS[method],
            http_status=None if partial is None else partial.status or None,
        )
        unknown.body = (b"" if partial is None else partial.body) or bytes(recorder.wire)
        return unknown


def _decoded(answer: RawAnswer) -> RawAnswer:
    """Return an answer whose body is not compressed; raise `ValueError` if the body is too long then."""
    body = decode_content(answer.body, answer.headers.get("content-encoding", ""), _MAX_ANSWER_BYTES)
    if body is None:
        raise ValueError(_TOO_LONG.format(_MAX_ANSWER_BYTES))
    return replace(answer, body=body)


@cache
def _user_agent() -> str:
    """Return the value of the header User-Agent: name and version of this package."""
    return f"lightmeter/{version('lightmeter')}"


def _payload(body: bytes, on_progress: Callable[[], None]) -> bytes | AsyncIterator[bytes]:
    """Return a short request body unchanged, and a long one in pieces; call `on_progress` before each piece is sent."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), _PIECE_BYTES):
            on_progress()
            yield body[start : start + _PIECE_BYTES]

    return body if len(body) <= _PIECE_BYTES else pieces()


def _check_key(key: SecretStr | None) -> None:
    """Raise `SettingsError` if the key is empty or cannot be part of a header; a line break would add headers."""
    text = "" if key is None else key.get_secret_value()
    if key is not None and not (text and text.isascii() and text.isprintable() and " " not in text):
        raise SettingsError("The API key is empty, or holds a space or a character that no key has.")
