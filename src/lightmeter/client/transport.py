"""A request out, a raw answer in, and the truth about what was sent; with `line`, the client's only door to aiohttp.

The contract has no idempotency key, so two failures must never be mixed up: *nothing was sent* (safe to send again)
and *something was sent* (it may have been charged). Hence no retry of a POST, no redirect, no netrc, no cookies, and no
proxy that was not asked for; the key goes to the configured address and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

from pydantic import SecretStr
from yarl import URL

from lightmeter.client.base_url import normalize_base_url
from lightmeter.client.connection_pool import HttpConnectionPool, HttpExchange, Timeouts
from lightmeter.client.http_answer import RawAnswer
from lightmeter.errors import OutcomeUnknown, SettingsError, Unreachable, UsageError
from lightmeter.facts.lenient_json import parse_object_strict
from lightmeter.models.vocabulary import AUTH_HEADER, MAX_QUERY_CHARS

__all__ = ["MAX_ANSWER_BYTES", "PROXY_FROM_ENVIRONMENT", "RawAnswer", "Timeouts", "Transport", "normalize_base_url"]

PROXY_FROM_ENVIRONMENT: Final = "environment"
"""The word for the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name."""

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Largest answer that is read: some 6 KB an asset are usual, so this is thousands of assets in one answer."""


class Transport:
    """A pool of connections to one service.

    Args:
        base_url: Address of the service, as for `normalize_base_url`.
        api_key: Key of the account, or None to send none.
        timeouts: How long to wait.
        connections: Most connections open at once; requests beyond wait for one before anything is sent.
        max_answer_bytes: Largest answer that is read, after content decoding.
        proxy: Address of an HTTP proxy, or `PROXY_FROM_ENVIRONMENT`; None means none, whatever the environment says.

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
        self.base_url: Final = normalize_base_url(base_url)
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        _check_key(self._api_key)
        self._timeouts = timeouts or Timeouts()
        self._connections = connections
        self._max_answer_bytes = max_answer_bytes
        self._proxy = None if proxy is None else _proxy_url(proxy, URL(self.base_url))
        self._line: HttpConnectionPool | None = None

    def __repr__(self) -> str:
        return f"Transport({self.base_url!r})"

    async def __aenter__(self) -> Self:
        self._line = HttpConnectionPool(
            URL(self.base_url), self._standing_headers(), self._timeouts, self._connections, self._proxy
        )
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
        _check_query(params)
        target = line.target(path, params)
        exchange = HttpExchange(
            _first_line(method, target), _own_lines(body, headers), body or b"", self._max_answer_bytes
        )
        try:
            return await line.carry(exchange)
        except Exception as error:
            if exchange.answer is not None and parse_object_strict(exchange.answer.body) is not None:
                return exchange.answer  # an object is whole once it is closed, however its connection ended
            if isinstance(error, OutcomeUnknown):
                error.body = exchange.answer.body if exchange.answer is not None else b""
                raise
            if not exchange.begun:  # name lookup, TCP, TLS handshake, or waiting for a place in the pool
                raise Unreachable(
                    f"{self.base_url} cannot be reached: {_reason(error)}.", hint="Nothing was sent."
                ) from error
            # Whatever went wrong once we began to write, bytes may have left: that is all we may claim.
            unknown = OutcomeUnknown(
                f"No whole answer to {method} {path}: {_reason(error)}.",
                hint="It may have been charged.",
                http_status=None if exchange.answer is None else exchange.answer.status,
            )
            unknown.body = exchange.answer.body if exchange.answer is not None else b""
            raise unknown from error

    def _standing_headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"lightmeter/{_own_version()}"}
        if self._api_key is not None:
            headers[AUTH_HEADER] = f"Token {self._api_key.get_secret_value()}"
        return headers


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


def _check_query(params: Mapping[str, str] | None) -> None:
    """The contract answers longer ones with an error; a proxy on the way might cut them."""
    if params and len(urlencode(params)) > MAX_QUERY_CHARS:
        raise UsageError(
            f"The query string is longer than the {MAX_QUERY_CHARS} characters that a service reads.",
            hint="Send it as a POST.",
        )


def _proxy_url(proxy: str, service: URL) -> URL | None:
    if proxy == PROXY_FROM_ENVIRONMENT:
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
            hint=f"Name one, or {PROXY_FROM_ENVIRONMENT!r} for the one that the environment names.",
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
