"""Adapter for Clarifai; it makes gRPC calls.

Source: https://docs.clarifai.com/resources/api-overview/ and the protocol in the package `clarifai-grpc`.
"""

from __future__ import annotations

import math
import time
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from lightmeter.errors import SettingsError
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, retry_after_s
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.adapter import (
    EncodedPicture,
    OneCallPerFeature,
    to_score,
    to_tags,
)
from lightmeter.wire.response import Nsfw

DEFAULT_TAG_MODEL: Final = "general-image-recognition"
"""Clarifai's general tagging model."""

DEFAULT_NSFW_MODEL: Final = "nsfw-recognition"
"""Clarifai's moderation model."""

NSFW_MODEL_OPTION: Final = "nsfw_model"
"""Name of the option that selects another moderation model of Clarifai."""

_METHOD: Final = "/clarifai.api.V2/PostModelOutputs"
_USER: Final = "clarifai"
"""User that owns Clarifai's models."""
_APP: Final = "main"
"""Application that holds Clarifai's models."""

_SUCCESS: Final = 10000
_THROTTLED: Final = frozenset({11005, 21354, 98014})
"""Status codes for a rate limit: CONN_THROTTLED, MODEL_BUSY_PLEASE_RETRY, INTERNAL_RESOURCE_EXHAUSTED."""
_QUOTA_USED_UP: Final = frozenset({11003, 11004})
"""Status codes for a used-up quota of the hour or the month, after which the call is not repeated:
CONN_EXCEED_HOURLY_LIMIT, CONN_EXCEED_MONTHLY_LIMIT."""
_TRANSIENT: Final = frozenset({10030, 21351, 21352, 21355, 40031, 40032, 98009, 98013})
"""Status codes after which the same call may succeed later: TRY_AGAIN, MODEL_DEPLOYING, MODEL_QUEUED_FOR_DEPLOYMENT,
MODEL_LOADING, RPC_SERVER_UNAVAILABLE, RPC_REQUEST_TIMEOUT, INTERNAL_UNEXPECTED_TIMEOUT, INTERNAL_REDIS_UNAVAILABLE."""
_INTERNAL: Final = range(98000, 100000)
"""Status codes INTERNAL_…: errors on the provider's side, after which the same call may succeed later."""

_BROKEN_CODES: Final = frozenset({"UNAVAILABLE", "INTERNAL", "UNKNOWN", "ABORTED", "DATA_LOSS", "CANCELLED"})
_UNREADABLE: Final = "deserializing"
"""Word in the details of gRPC's error INTERNAL that marks an answer which does not follow the protocol."""


class Clarifai(OneCallPerFeature):
    """Back end `clarifai`: features nsfw, tags.

    `tags` come from the model `general-image-recognition` (the twenty best labels). `nsfw` comes from the model
    `nsfw-recognition`: the labels nsfw and sfw, whose scores add up to 1.

    Clarifai's terms of service apply; pictures are sent to Clarifai.

    Args:
        settings: `api_key` is a personal access token; `model` is the model for tags, the option `nsfw_model` the model
            for unsafe content. The connection is encrypted, except to an http address of this machine.

    Raises:
        SettingsError: clarifai-grpc (extra `clarifai`) is not installed, the key is missing, or the address is invalid.
    """

    supported_features = frozenset({"nsfw", "tags"})

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        if settings.api_key is None:
            raise SettingsError(f"The back end {self.name} has no key: set CLARIFAI_PAT.")
        self.operations = {
            "nsfw": settings.options.get(NSFW_MODEL_OPTION) or DEFAULT_NSFW_MODEL,
            "tags": settings.model or DEFAULT_TAG_MODEL,
        }
        self._metadata = (("authorization", f"Key {settings.api_key.get_secret_value()}"),)
        self._grpc = self._import_extra("grpc", "clarifai")
        self._messages = self._import_extra("clarifai_grpc.grpc.api.service_pb2", "clarifai")
        self._resources = self._import_extra("clarifai_grpc.grpc.api.resources_pb2", "clarifai")
        channel = self._open_channel(settings)
        self.connections.callback(channel.close)
        # Not the package's V2Stub, which works only with channels of its own factory.
        self._call = channel.unary_unary(
            _METHOD,
            request_serializer=self._messages.PostModelOutputsRequest.SerializeToString,
            response_deserializer=self._messages.MultiOutputResponse.FromString,
        )

    def _open_channel(self, settings: ProviderSettings) -> Any:
        target, secure = _grpc_target(settings.name, settings.base_url)
        options = (
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),  # `Retrier` counts retries and applies the deadline
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.max_reconnect_backoff_ms", 5000),
        )
        if secure:
            return self._grpc.secure_channel(target, self._grpc.ssl_channel_credentials(), options)
        return self._grpc.insecure_channel(target, options)

    def _request(self, feature: str, picture: EncodedPicture, timeout_s: float) -> Any:
        data = self._resources.Data(image=self._resources.Image(base64=picture.jpeg))
        request = self._messages.PostModelOutputsRequest(
            user_app_id=self._resources.UserAppIDSet(user_id=_USER, app_id=_APP),
            model_id=self.operations[feature],
            inputs=[self._resources.Input(data=data)],
        )
        try:
            answer = self._call(request, metadata=self._metadata, timeout=timeout_s)
        except self._grpc.RpcError as error:
            raise _rpc_failure(error, timeout_s) from None
        _raise_for_status(answer.status)
        if len(answer.outputs) != 1:
            raise CallFailed(FailureKind.MALFORMED, f"it has {len(answer.outputs)} outputs for one picture")
        _raise_for_status(answer.outputs[0].status)
        concepts = answer.outputs[0].data.concepts
        if not concepts or not all(concept.name and math.isfinite(concept.value) for concept in concepts):
            raise CallFailed(FailureKind.MALFORMED, "its concepts have no name, no value or are missing")
        scored_names = [(concept.name, to_score(concept.value)) for concept in concepts]
        if feature == "tags":
            return to_tags(scored_names, self.name)
        return [Nsfw(label=name, score=score, source=self.name) for name, score in scored_names]


def _rpc_failure(error: Any, timeout_s: float) -> CallFailed:
    code, details = error.code().name, str(error.details())
    message = f"{code}: {details}"
    if code == "RESOURCE_EXHAUSTED":
        return CallFailed(FailureKind.THROTTLED, message, is_transient=True, retry_after_s=_requested_wait_s(error))
    if code == "DEADLINE_EXCEEDED":
        return CallFailed(FailureKind.TIMEOUT, f"no answer within {timeout_s:g} s", is_transient=True)
    if code == "INTERNAL" and _UNREADABLE in details:
        return CallFailed(FailureKind.MALFORMED, message)
    if code in _BROKEN_CODES:
        return CallFailed(FailureKind.BROKEN, message, is_transient=True)
    return CallFailed(FailureKind.REFUSED, message)


def _requested_wait_s(error: Any) -> float | None:
    """Return how many seconds the provider asks to wait, by the metadata of a gRPC error; None if it does not ask."""
    metadata = {key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)}
    pushback = metadata.get("grpc-retry-pushback-ms")
    headers = metadata if pushback is None else {**metadata, "retry-after-ms": pushback}
    return retry_after_s(headers, None, time.time())


def _grpc_target(name: str, base_url: str) -> tuple[str, bool]:
    """Return the target `host:port` of a base URL, and whether the connection is encrypted.

    `name` is the name of the back end, for the error message.

    Raises:
        SettingsError: the URL is neither https nor an http address of this machine.
    """
    parts = urlsplit(base_url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.hostname and port != -1:
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        if parts.scheme == "https":
            return f"{host}:{port or 443}", True
        if parts.scheme == "http" and _is_loopback(parts.hostname):
            return f"{host}:{port or 80}", False
    raise SettingsError(
        f"The address {base_url!r} of the back end {name} is no https address, nor an http address of this machine."
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _raise_for_status(status: Any) -> None:
    """Raise `CallFailed` unless the status in Clarifai's answer means success.

    The status code decides the kind of the failure, such as throttling.
    """
    if status.code == _SUCCESS:
        return
    message = ": ".join(filter(None, (str(status.code), status.description, status.details)))
    if status.code in _THROTTLED:
        raise CallFailed(FailureKind.THROTTLED, message, is_transient=True)
    if status.code in _QUOTA_USED_UP:
        raise CallFailed(FailureKind.THROTTLED, message)
    if status.code in _TRANSIENT or status.code in _INTERNAL:
        raise CallFailed(FailureKind.BROKEN, message, is_transient=True)
    if status.code == 0:
        raise CallFailed(FailureKind.MALFORMED, "it has no status")
    raise CallFailed(FailureKind.REFUSED, message)
