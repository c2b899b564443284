"""HTTP client for the APIs of providers: no redirects, no environment variables, limits on time and answer length."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from lightmeter.errors import SettingsError
from lightmeter.service.backends.providers.failures import (
    CallFailed,
    FailureKind,
    error_in_answer,
    http_failure,
    parse_json,
)
from lightmeter.service.backends.providers.provider import ProviderSettings

MAX_ANSWER_BYTES: Final = 32 * 2**20
"""Maximum length of a vision provider's answer, in bytes; a call with a longer answer fails. The longest measured
answer, for a page full of text, had under 2 MB."""

MAX_CONNECT_S: Final = 10.0
"""Maximum time to open a connection to a provider, in seconds."""

_OK: Final = 200

T = TypeVar("T")


def open_client(settings: ProviderSettings, headers: Mapping[str, str] | None = None) -> httpx2.Client:
    """Return an HTTP client for one provider, which sends `headers` with every call.

    The client reads no environment variable (proxies, certificates, `.netrc`) and follows no redirect.

    Raises:
        SettingsError: the base URL is not an http or https address.
    """
    try:
        url = httpx2.URL(settings.base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError(
            f"The base URL of {settings.name} is no address.", hint="It begins with https:// or http:// and a host."
        )
    connections = httpx2.Limits(max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency)
    return httpx2.Client(
        headers=headers,
        verify=_certificates(),
        trust_env=False,
        follow_redirects=False,
        timeout=timeouts(settings.timeout_s),
        limits=connections,
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Return a TLS context with the trusted certificates. All clients share it, because reading them takes 30 ms."""
    return httpx2.create_ssl_context(trust_env=False)


def timeouts(timeout_s: float) -> httpx2.Timeout:
    """Return the timeouts of a call: `timeout_s` seconds for each read or write, at most `MAX_CONNECT_S` to connect."""
    return httpx2.Timeout(timeout_s, connect=min(timeout_s, MAX_CONNECT_S))


def read_body(response: httpx2.Response, deadline: float, max_bytes: int) -> bytes:
    """Read the body of a streamed answer.

    Args:
        response: Answer whose body is not read yet.
        deadline: Time on the clock `time.monotonic` by which the whole body must have arrived. It is needed because the
            timeout of the client limits only each single read.
        max_bytes: Maximum length of the body, in bytes.

    Raises:
        CallFailed: the body takes too long or is too long.
    """
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > max_bytes:
            raise CallFailed(FailureKind.MALFORMED, f"it is longer than {max_bytes} bytes")
        if time.monotonic() > deadline:
            raise CallFailed(FailureKind.TIMEOUT, "the answer was not complete in time", is_transient=True)
    return bytes(content)


def decode_json(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body as a value of the type `kind`.

    Raises:
        CallFailed: the body is not JSON, is an error, or its content does not fit `kind`.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if (reported := error_in_answer(parse_json(body), {}, time.time())) is not None:
            raise reported from None
        raise CallFailed(FailureKind.MALFORMED, f"it is not the expected JSON: {error}") from None


@contextmanager
def translate_errors(timeout_s: float) -> Iterator[None]:
    """Convert every exception that the `with` block raises, such as those of an SDK, to `CallFailed`.

    Args:
        timeout_s: Time limit of the call, in seconds. It is only named in the message of a timeout.

    Raises:
        CallFailed: the call failed.
    """
    try:
        yield
    except CallFailed:
        raise
    except Exception as error:
        raise _to_call_failed(error, timeout_s) from error


def _to_call_failed(error: Exception, timeout_s: float) -> CallFailed:
    """Convert an exception of a provider call to `CallFailed`.

    If the exception holds an HTTP answer, this answer decides the kind of failure; otherwise, the type of the exception
    does. `timeout_s` is the time limit of the call, in seconds; it is only named in the message of a timeout.
    """
    response = getattr(error, "response", None)
    if isinstance(response, httpx2.Response):
        return http_failure(response.status_code, response.headers, response.content, time.time())
    cause = error if isinstance(error, httpx2.HTTPError) else error.__cause__
    if isinstance(cause, httpx2.TimeoutException):
        return CallFailed(FailureKind.TIMEOUT, f"no answer within {timeout_s:g} s", is_transient=True)
    if isinstance(cause, httpx2.TransportError):
        return CallFailed(FailureKind.BROKEN, f"no connection ({type(cause).__name__})", is_transient=True)
    if isinstance(cause, httpx2.DecodingError):
        return CallFailed(FailureKind.MALFORMED, "it cannot be decompressed")
    return CallFailed(FailureKind.BROKEN, f"unexpected error ({type(error).__name__})")


class RestClient:
    """HTTP client for a provider's REST API; several threads may use it at once.

    Args:
        settings: The provider's address and limits.
        headers: Headers that are sent with every call.

    Raises:
        SettingsError: the base URL is not an http or https address.
    """

    def __init__(self, settings: ProviderSettings, headers: Mapping[str, str] | None = None) -> None:
        self._base_url = settings.base_url.rstrip("/")
        self._client = open_client(settings, headers)

    def close(self) -> None:
        """Close the connections to the provider."""
        self._client.close()

    def post(self, path: str, timeout_s: float, **content: Any) -> bytes:
        """Send one POST request and return the body of its answer.

        Args:
            path: Path below the provider's address, with a leading slash.
            timeout_s: Longest time for the call, in seconds.
            content: Arguments of `httpx2.Client.stream`, such as `json`, `files` and `headers`.

        Raises:
            CallFailed: no answer came in time, its status is not 200, or it is too long or wrongly encoded.
        """
        deadline = time.monotonic() + timeout_s
        with (
            translate_errors(timeout_s),
            self._client.stream("POST", self._base_url + path, timeout=timeouts(timeout_s), **content) as response,
        ):
            body = read_body(response, deadline, MAX_ANSWER_BYTES)
            if response.status_code != _OK:
                raise http_failure(response.status_code, response.headers, body, time.time())
            return body
