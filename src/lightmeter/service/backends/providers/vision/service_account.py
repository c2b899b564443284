"""Access tokens of a Google service account, from its key file."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from types import SimpleNamespace
from typing import Any

import httpx2

from lightmeter.errors import SettingsError
from lightmeter.extras import import_extra
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind


class ServiceAccount:
    """Google service account that fetches and caches access tokens; several threads may use it at once.

    Args:
        backend: Name of the back end, for messages.
        path: Path of the account's key file (JSON).
        scope: OAuth scope of the token.
        timeout_s: Timeout of a request for a token, in seconds.

    Raises:
        SettingsError: google-auth is not installed, or the file is not the key file of a service account.
    """

    def __init__(self, backend: str, path: str, scope: str, timeout_s: float) -> None:
        module = import_extra("google.oauth2.service_account", "googlevision", f"The back end {backend}")
        self._errors: Any = import_extra("google.auth.exceptions", "googlevision", f"The back end {backend}")
        try:
            self._credentials: Any = module.Credentials.from_service_account_file(path, scopes=[scope])
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"The back end {backend} cannot use the key file {path} ({type(error).__name__}):"
                " GOOGLE_APPLICATION_CREDENTIALS must name the JSON key file of a service account."
            ) from error
        self._client = httpx2.Client(trust_env=False, timeout=timeout_s)
        self._lock = Lock()

    def close(self) -> None:
        """Close the connections to Google's token server."""
        self._client.close()

    def headers(self) -> dict[str, str]:
        """Return the header that authorizes a call. Fetch a new access token first if there is no valid one.

        Raises:
            CallFailed: the account is refused, or the token server cannot be reached.
        """
        with self._lock:
            if not self._credentials.valid:
                self._refresh()
            return {"Authorization": f"Bearer {self._credentials.token}"}

    def _refresh(self) -> None:
        try:
            self._credentials.refresh(self._send)
        except self._errors.TransportError as error:
            raise CallFailed(FailureKind.BROKEN, f"no access token: {error}", is_transient=True) from None
        except self._errors.GoogleAuthError as error:
            message = str(error.args[0]) if error.args else type(error).__name__
            raise CallFailed(FailureKind.REFUSED, f"no access token: {message}", is_transient=error.retryable) from None

    def _send(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ARG002 (the client has a timeout)
        **_: Any,
    ) -> SimpleNamespace:
        """Send an HTTP request on behalf of google-auth, which calls this function.

        Return the `status`, `headers` and `data` (body) of the answer. `timeout` and unknown arguments are ignored; the
        constructor's `timeout_s` applies.

        Raises:
            google.auth.exceptions.TransportError: there was no answer.
        """
        try:
            answer = self._client.request(method, url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise self._errors.TransportError(type(error).__name__) from error
        return SimpleNamespace(status=answer.status_code, headers=answer.headers, data=answer.content)
