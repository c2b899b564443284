"""The client's only door to aiohttp: a request out, a raw answer in, and the truth about what was sent.

The contract has no idempotency key, so two failures must never be mixed up: *nothing was sent* (safe to send again)
and
*something was sent* (it may have been charged). Hence no retry of a POST, no redirect, no netrc,
no cookies, and no proxy that was not asked for; the key goes to the configured address and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import StreamWriter
from pydantic import SecretStr
from yarl import URL

from lightmeter.client.raw import RawAnswer
from lightmeter.errors import OutcomeUnknown, SettingsError, Unreachable, UsageError
from lightmeter.models.vocabulary import AUTH_HEADER, MAX_QUERY_CHARS

__all__ = ["ENVIRONMENT", "MAX_ANSWER_BYTES", "RawAnswer", "Timeouts", "Transport", "normal_base_url"]

ENVIRONMENT: Final = "environment"
"""The word for the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name."""

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Largest answer that is read: some 6 KB an asset are usual, so this is thousands of assets in one answer."""

# An idle connection that the server closes just as we send makes a POST uncertain. Common servers close idle
# ones after 2 s (gunicorn), 5 s (uvicorn, node) or 75 s (nginx); a fresh handshake is cheaper than a held
# credit.
_KEEP_ALIVE_S = 1.5

_WRITTEN_AT_ONCE_BYTES = 256 * 1024
_READ_BYTES = 256 * 1024


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


def normal_base_url(base_url: str) -> str:
    """The address of a service without its trailing slash: scheme, host, port, and a path if it has one.

    Raises:
        SettingsError: not http or https, no host, or with a user name, a query or a fragment inside.
    """
    try:
        url = URL(base_url.strip())
    except ValueError as error:
        raise SettingsError(f"The base URL {base_url!r} is not a URL: {error}.") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError(f"The base URL {base_url!r} does not start with http:// or https:// and a host.")
    if url.user is not None or url.password is not None:
        raise SettingsError("The base URL holds a user name or a password; the key is given by itself.")
    if url.query_string or url.fragment:
        raise SettingsError(f"The base URL {base_url!r} holds a query or a fragment.")
    return str(url).rstrip("/")


class Transport:
    """A pool of connections to one service.

    Args:
        base_url: Address of the service, as for `normal_base_url`.
        api_key: Key of the account, or None to send none.
        timeouts: How long to wait.
        connections: Most connections open at once; requests beyond wait for one before anything is sent.
        max_answer_bytes: Largest answer that is read, after content decoding.
        proxy: Address of an HTTP proxy, or `ENVIRONMENT`; None means none, whatever the environment says.

    Raises:
        SettingsError: the base URL, the key or the proxy cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: SecretStr | str | None = None,
        timeouts: Timeouts | None = None,
        connections: int = 64,
        *,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        proxy: str | None = None,
    ) -> None:
        self.base_url: Final = normal_base_url(base_url)
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        _check_key(self._api_key)
        self._timeouts = timeouts or Timeouts()
        self._connections = connections
        self._max_answer_bytes = max_answer_bytes
        self._proxy = None if proxy is None else _proxy_url(proxy, URL(self.base_url))
        self._line: _Line | None = None

    def __repr__(self) -> str:
        return f"Transport({self.base_url!r})"

    async def __aenter__(self) -> Self:
        self._line = _Line(URL(self.base_url), self._standing_headers(), self._timeouts, self._connections, self._proxy)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RawAnswer:
        """Send one request, once, and read the whole answer.

        Args:
            method: `GET` or `POST`.
            path: Path under the base URL, starting with a slash, percent-encoded where it must be.
            body: JSON, as bytes.
            params: Query parameters.
            headers: Headers beside the standing ones.

        Raises:
            UsageError: the query is longer than the service reads, or something would not fit into one line of the
                head; nothing was sent. A POST has no such limit.
            Unreachable: no connection was made, so nothing was sent.
            OutcomeUnknown: anything else that is not a whole answer: closed, too slow, too long, garbled.
            RuntimeError: used outside `async with`: a bug of the caller.
        """
        line = self._line
        if line is None:
            raise RuntimeError("The transport is not open: use `async with`.")
        target = line.target(path, params)
        exchange = _Exchange(
            _first_line(method, target), _own_lines(body, headers), body or b"", self._max_answer_bytes
        )
        try:
            return await line.carry(exchange)
        except OutcomeUnknown:
            raise
        except Exception as error:
            if not exchange.begun:  # name lookup, TCP, TLS handshake, or waiting for a place in the pool
                raise Unreachable(
                    f"{self.base_url} cannot be reached: {_reason(error)}.", hint="Nothing was sent."
                ) from error
            # Whatever went wrong once we began to write, bytes may have left: that is all we may claim.
            raise OutcomeUnknown(
                f"No whole answer to {method} {path}: {_reason(error)}.", hint="It may have been charged."
            ) from error

    def _standing_headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"lightmeter/{_own_version()}"}
        if self._api_key is not None:
            headers[AUTH_HEADER] = f"Token {self._api_key.get_secret_value()}"
        return headers


@dataclass(slots=True)
class _Exchange:
    """One request and the way of its answer.

    Attributes:
        first_line: The request line.
        own_lines: The headers of this request alone, and the empty line that ends the head.
        body: What follows the head.
        max_answer_bytes: Largest answer that is read.
        begun: Whether it has begun to leave; as long as it has not, nothing can have been charged.
        late: Whether it was given up because it took too long as a whole.
    """

    first_line: bytes
    own_lines: bytes
    body: bytes
    max_answer_bytes: int
    begun: bool = False
    late: bool = False

    def give_up(self, transport: asyncio.Transport) -> None:
        """End the wait for the answer: whoever reads hears that the connection is gone."""
        self.late = True
        transport.abort()

    def write(
        self, protocol: ResponseHandler, transport: asyncio.Transport, standing: bytes
    ) -> asyncio.Task[None] | None:
        """Write it; what is too long to be written in one go is written by the task that is returned."""
        self.begun = True
        head = self.first_line + standing + self.own_lines
        if len(self.body) <= _WRITTEN_AT_ONCE_BYTES:
            transport.write(head + self.body)
            protocol.start_timeout()
            return None
        transport.write(head)
        return asyncio.create_task(self._write_body(protocol))

    async def _write_body(self, protocol: ResponseHandler) -> None:
        """In pieces, each when the one before has left; the time for the answer counts from the last one."""
        writer, body = StreamWriter(protocol, asyncio.get_running_loop()), memoryview(self.body)
        for start in range(0, len(body), _WRITTEN_AT_ONCE_BYTES):
            await writer.write(body[start : start + _WRITTEN_AT_ONCE_BYTES])
            await writer.drain()
        protocol.start_timeout()

    async def read(self, protocol: ResponseHandler) -> RawAnswer:
        """Read the answer that comes."""
        message, payload = await protocol.read()
        while message.code < HTTPStatus.OK and message.code != HTTPStatus.SWITCHING_PROTOCOLS:
            message, payload = await protocol.read()
        headers = {name.lower(): value for name, value in message.headers.items()}
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) <= _READ_BYTES and "content-encoding" not in headers:
            return RawAnswer(message.code, headers, await payload.read())
        content = bytearray()
        async for chunk in payload.iter_chunked(_READ_BYTES):
            content += chunk
            if len(content) > self.max_answer_bytes:
                raise OutcomeUnknown(
                    f"The answer is longer than {self.max_answer_bytes} bytes.",
                    hint="It may have been charged.",
                    http_status=message.code,
                )
        return RawAnswer(message.code, headers, bytes(content))


class _Line:
    """Open connections to one address, and what all requests over them have in common.

    Connections, proxies, TLS and the reading of answers are aiohttp's. Its session is left out: it makes each request
    ready for redirects, cookies, netrc, middleware and traces, none of which may happen here, and that took more time
    than all the rest.
    """

    def __init__(
        self, base: URL, headers: Mapping[str, str], timeouts: Timeouts, connections: int, proxy: URL | None
    ) -> None:
        self._connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=_KEEP_ALIVE_S)
        self._like = aiohttp.ClientRequest("GET", base, headers=headers, proxy=proxy, loop=asyncio.get_running_loop())
        self._total_s = timeouts.total_s
        self._read_s = timeouts.read_s
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
        _check_query(params)
        return f"{self._prefix}{path}?{URL.build(query=params).raw_query_string}"

    async def carry(self, exchange: _Exchange) -> RawAnswer:
        """Send one request over a connection of its own and read its answer.

        Raises:
            TimeoutError: it took too long as a whole.
            Exception: whatever aiohttp and the system say.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._total_s
        connection = await self._connector.connect(self._like, [], self._connecting)
        protocol, transport = connection.protocol, connection.transport
        assert protocol is not None  # noqa: S101 (a connection that was just taken has both)
        assert transport is not None  # noqa: S101 (likewise)
        late, writing = loop.call_at(until, exchange.give_up, transport), None
        try:
            protocol.set_response_params(read_until_eof=True, read_timeout=self._read_s)
            # Before a connection stands, nobody knows what a proxy wants to be told with each request.
            writing = exchange.write(protocol, transport, self._standing or _lines(self._like.headers))
            answer = await exchange.read(protocol)
        except BaseException as error:
            connection.close()
            if exchange.late and isinstance(error, Exception):
                raise TimeoutError(f"none within {self._total_s:g} s") from error
            raise
        finally:
            late.cancel()
            whole = writing is None or writing.done()
            if writing is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
        if whole:
            connection.release()
        else:  # answered before all of it was read: what comes next would be taken for its rest
            connection.close()
        return answer


def _first_line(method: str, target: str) -> bytes:
    _check_line(target)
    return f"{method} {target} HTTP/1.1\r\n".encode("ascii")


def _own_lines(body: bytes | None, headers: Mapping[str, str] | None) -> bytes:
    lines = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    for name, value in (headers or {}).items():
        _check_line(value)
        lines += f"{name}: {value}\r\n"
    return f"{lines}\r\n".encode("ascii")


def _check_line(text: str) -> None:
    """A line break in it would write headers of its own."""
    if not (text.isascii() and text.isprintable()):
        raise UsageError("The request holds a character that no address and no header may have.")


def _lines(headers: Mapping[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("ascii")


def _check_query(params: Mapping[str, str] | None) -> None:
    """The contract answers longer ones with an error; a proxy on the way might cut them."""
    if params and len(urlencode(params)) > MAX_QUERY_CHARS:
        raise UsageError(
            f"The query string is longer than the {MAX_QUERY_CHARS} characters that a service reads.",
            hint="Send it as a POST.",
        )


def _proxy_url(proxy: str, service: URL) -> URL | None:
    if proxy == ENVIRONMENT:
        named = getproxies().get(service.scheme)
        if named is None or proxy_bypass(service.host or ""):
            return None
        proxy = named
    try:
        url = URL(proxy.strip())
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:  # (it may hold a password: it is not shown)
        raise SettingsError(
            "The proxy is no address that starts with http:// and a host.",
            hint=f"Name one, or {ENVIRONMENT!r} for the one that the environment names.",
        )
    return url


def _check_key(key: SecretStr | None) -> None:
    """A key must fit into a header: a line break in it would write headers of its own."""
    text = "" if key is None else key.get_secret_value()
    if key is not None and not (text and text.isascii() and text.isprintable() and " " not in text):
        raise SettingsError("The API key is empty, or holds a space or a character that no key has.")


def _reason(error: BaseException) -> str:
    """One line without a full stop; aiohttp's timeouts and disconnects have little text of their own."""
    return (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__


def _own_version() -> str:
    try:
        return version("lightmeter")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"
