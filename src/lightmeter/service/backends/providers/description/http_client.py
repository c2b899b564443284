"""One HTTP client for the providers' SDKs, which sends to one address, with one key, and reads bounded answers."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import orjson

from lightmeter.errors import SettingsError
from lightmeter.service.backends.providers.description.failures import (
    DescriptionCallFailed,
    FailureKind,
    status_failure,
)
from lightmeter.service.backends.providers.provider import ProviderSettings

__all__ = ["open_client", "read_json", "secrets_of", "timeouts", "translate_errors"]

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Of one answer; a description takes some thousand."""

MAX_CONNECT_S: Final = 10.0

_SENT: Final = frozenset(
    {
        *("accept", "accept-encoding", "anthropic-version", "connection", "content-length", "content-type", "host"),
        *("transfer-encoding", "user-agent", "x-stainless-raw-response"),
    }
)
"""Headers of the SDKs that are sent. They would add a description of this machine, and, from variables that the
operator may have set for another program, names of accounts and headers of any kind. The last one is the SDKs' own note
of how they were called, which they read from the request again."""


def open_client(settings: ProviderSettings, credentials: Mapping[str, str]) -> httpx2.Client:
    """An HTTP client for one provider.

    It reads no environment variable (proxies, certificates, `.netrc`), follows no redirect, and sends no header but
    those of the protocol and `credentials`.

    Args:
        settings: Of the provider.
        credentials: Headers that carry the key; none where there is no key.

    Raises:
        SettingsError: the base URL is none.
    """
    parts = urlsplit(settings.base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"The base URL of {settings.name} is no address.", hint="It begins with https:// or http:// and a host."
        )

    def with_own_headers(request: httpx2.Request) -> None:
        for name in [name for name in request.headers if name.lower() not in _SENT]:
            del request.headers[name]
        request.headers.update(credentials)

    connections = httpx2.Limits(max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency)
    return httpx2.Client(
        verify=_certificates(),
        trust_env=False,
        follow_redirects=False,
        timeout=timeouts(settings.timeout_s),
        limits=connections,
        event_hooks={"request": [with_own_headers]},
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust, for all clients: reading the list takes 30 ms."""
    return httpx2.create_ssl_context(trust_env=False)


def timeouts(seconds: float) -> httpx2.Timeout:
    """Each step of a call may take so many seconds, connecting at most `MAX_CONNECT_S`."""
    return httpx2.Timeout(seconds, connect=min(seconds, MAX_CONNECT_S))


def secrets_of(settings: ProviderSettings) -> tuple[str, ...]:
    """What must never stand in a message."""
    return tuple(key.get_secret_value() for key in (settings.api_key, settings.api_secret) if key is not None)


def read_json(chunks: Iterable[bytes], until: float, now: Callable[[], float] = time.monotonic) -> dict[str, Any]:
    """Read an answer that must be a JSON object.

    Args:
        chunks: The body; each read of it may take as long as the client's timeout.
        until: When the whole must be there, on the clock `now`.
        now: Monotonic clock, in seconds.

    Raises:
        CallFailed: it takes too long, is too large, or is no JSON object.
    """
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise DescriptionCallFailed("The provider's answer is larger than any description.", FailureKind.MALFORMED)
        if now() > until:
            raise DescriptionCallFailed(
                "The provider did not finish its answer in time.", FailureKind.TIMEOUT, retry=True
            )
    try:
        body = orjson.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise DescriptionCallFailed("The provider's answer is no JSON object.", FailureKind.MALFORMED)
    return body


@contextmanager
def translate_errors(secrets: Iterable[str]) -> Iterator[None]:
    """Turn whatever an SDK or its HTTP client raises into `CallFailed`.

    Args:
        secrets: What must not stand in the sentence.

    Raises:
        CallFailed: the call failed.
    """
    try:
        yield
    except DescriptionCallFailed:
        raise
    except Exception as error:
        raise _failure(error, secrets) from error


def _failure(error: Exception, secrets: Iterable[str]) -> DescriptionCallFailed:
    """SDK errors carry the answer if there was one; else the HTTP client's error is their cause."""
    response = getattr(error, "response", None)
    if isinstance(response, httpx2.Response):
        return status_failure(response.status_code, response.headers, response.content, time.time(), secrets)
    cause = error if isinstance(error, httpx2.HTTPError) else error.__cause__
    if isinstance(cause, httpx2.TimeoutException):
        return DescriptionCallFailed("The provider did not answer in time.", FailureKind.TIMEOUT, retry=True)
    if isinstance(cause, httpx2.TransportError):
        why = type(cause).__name__
        return DescriptionCallFailed(f"The connection to the provider failed ({why}).", FailureKind.BROKEN, retry=True)
    if isinstance(cause, httpx2.DecodingError):
        return DescriptionCallFailed("The provider's answer cannot be decompressed.", FailureKind.MALFORMED)
    return DescriptionCallFailed(f"The call of the provider failed ({type(error).__name__}).", FailureKind.BROKEN)
