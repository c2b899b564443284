"""JSON over HTTPS for the providers that need no library of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from lightmeter.errors import SettingsError
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.retries import VisionCallFailed, retry_after_seconds

__all__ = ["MAX_ANSWER_BYTES", "HttpAnswer", "RestClient"]

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 32 * 2**20
"""Longer answers are given up: the longest seen, a page full of text, is under 2 MB."""

_OK: Final = 200


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP answer that was read to its end.

    Attributes:
        status: Of HTTP.
        retry_after_s: The header `Retry-After` in seconds; None where it is missing or unreadable.
        body: Its bytes.
    """

    status: int
    retry_after_s: float | None
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 200."""
        return self.status == _OK

    def decoded(self, kind: type[T]) -> T:
        """The body as a typed value.

        Raises:
            CallFailed: it is no JSON, or not of that type (`malformed`).
        """
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise VisionCallFailed("malformed", str(error)) from None

    def decode_or_default(self, kind: type[T], default: T) -> T:
        """The body as a typed value, or `default`: for the bodies of errors, which a proxy may have written."""
        try:
            return self.decoded(kind)
        except VisionCallFailed:
            return default


class RestClient:
    """Posts to one provider. Reads no proxy, certificate or password from the environment; follows no redirect.

    Its methods are called from several threads.

    Args:
        settings: Address, timeout and number of calls at the same time.
        headers: Sent with every call.
        basic: User and password, sent with every call.

    Raises:
        SettingsError: the address is no http or https address.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        headers: Mapping[str, str] | None = None,
        basic: tuple[str, str] | None = None,
    ) -> None:
        try:
            url = httpx2.URL(settings.base_url)
        except httpx2.InvalidURL:
            url = httpx2.URL("")
        if url.scheme not in ("http", "https") or not url.host:
            raise SettingsError(
                f"The address {settings.base_url!r} of the back end {settings.name} is no http or https address."
            )
        self._base_url = settings.base_url.rstrip("/")
        self._timeout_s = settings.timeout_s
        self._client = httpx2.Client(
            headers=headers,
            auth=None if basic is None else httpx2.BasicAuth(*basic),
            trust_env=False,
            timeout=settings.timeout_s,
            limits=httpx2.Limits(max_connections=settings.concurrency),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def post(
        self,
        path: str,
        *,
        json: Any = None,
        files: Mapping[str, tuple[str, bytes, str]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Post once and read the answer, whatever its status.

        Args:
            path: Below the provider's address.
            json: Body, as JSON.
            files: Body, as multipart/form-data: field to file name, bytes, media type.
            headers: Further headers of this call.

        Raises:
            CallFailed: no answer came (`timeout`, `broken`), or one that is too long or wrongly encoded (`malformed`).
        """
        begun = time.monotonic()
        content = None if json is None else msgspec.json.encode(json)
        more = {} if content is None else {"Content-Type": "application/json"}
        try:
            with self._client.stream(
                "POST", self._base_url + path, content=content, files=files, headers={**more, **(headers or {})}
            ) as answer:
                body = self._read(answer, begun + self._timeout_s)
                retry_after_s = retry_after_seconds(answer.headers.get("Retry-After"), time.time())
                return HttpAnswer(answer.status_code, retry_after_s, body)
        except httpx2.TimeoutException:
            raise self._timed_out() from None
        except httpx2.TransportError as error:
            raise VisionCallFailed("broken", f"{type(error).__name__}: {error}", passing=True) from None
        except httpx2.RequestError as error:
            raise VisionCallFailed("malformed", f"{type(error).__name__}: {error}") from None

    def _read(self, answer: httpx2.Response, deadline: float) -> bytes:
        body = bytearray()
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise VisionCallFailed("malformed", f"it is longer than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:  # the timeout of the client is for each read, not for all of them
                raise self._timed_out()
        return bytes(body)

    def _timed_out(self) -> VisionCallFailed:
        return VisionCallFailed("timeout", f"no answer within {self._timeout_s:g} s", passing=True)
