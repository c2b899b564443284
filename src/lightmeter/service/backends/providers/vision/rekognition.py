"""Adapter for Amazon Rekognition. It calls the service through botocore, the library that the AWS SDK is built on.

Source: https://docs.aws.amazon.com/rekognition/latest/APIReference/API_Operations.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lightmeter.errors import SettingsError
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, retry_after_s
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.adapter import (
    MAX_TAGS,
    EncodedPicture,
    OneCallPerFeature,
    key_pair,
)
from lightmeter.service.backends.providers.vision.rekognition_answer import (
    read_faces,
    read_labels,
    read_moderation_labels,
)

DEFAULT_REGION: Final = "us-east-1"
"""AWS region that is used if the option `region` is not set."""

REGION_OPTION: Final = "region"
"""Name of the option that holds the AWS region. The region replaces `{region}` in the address and is part of
signatures."""

SESSION_TOKEN_OPTION: Final = "session_token"  # noqa: S105 (the name of an option)
"""Name of the option that holds the session token, which AWS requires with temporary keys."""

_SERVER_ERROR: Final = 500

_THROTTLED: Final = frozenset(
    {
        "ThrottlingException",
        "Throttling",
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "SlowDown",
    }
)
"""Error codes with which Rekognition and other AWS services report throttling."""

_PARSER_ERRORS: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


class _Operation(NamedTuple):
    """Operation of Amazon Rekognition, and how to call it.

    Attributes:
        name: Name of the operation, such as `DetectFaces`.
        method: Name of the method of a botocore client that calls the operation.
        arguments: Arguments of this method in addition to the picture.
        read: Function that converts an answer to entries (faces, tags, …). Its arguments are the decoded answer, the
            picture and the name of the back end.
    """

    name: str
    method: str
    arguments: Mapping[str, Any]
    read: Callable[[dict[str, Any], EncodedPicture, str], Any]


_OPERATIONS: Final = {
    "faces": _Operation("DetectFaces", "detect_faces", {"Attributes": ["ALL"]}, read_faces),
    "nsfw": _Operation("DetectModerationLabels", "detect_moderation_labels", {}, read_moderation_labels),
    "tags": _Operation("DetectLabels", "detect_labels", {"MaxLabels": MAX_TAGS}, read_labels),
}


class Rekognition(OneCallPerFeature):
    """Back end `rekognition`: features faces, nsfw, tags.

    `tags` come from DetectLabels (confidence 55 and above, the provider's default). `nsfw` comes from
    DetectModerationLabels (confidence 50 and above). Only unsafe content has such labels, so a harmless picture has no
    `nsfw` entry. `faces` come from DetectFaces with all attributes: box, age range, gender, emotions; landmarks are
    dropped. The provider refuses pictures with a side under 80 pixels.

    The timeout limits each read from the connection, not the whole answer.

    The AWS service terms apply; pictures are sent to the region that is set.

    Args:
        settings: `api_key` is the access key id, `api_secret` the secret access key. The options are `region` (default
            us-east-1) and `session_token`. The adapter reads no other AWS configuration: no file below `~/.aws`, no
            environment variable, no metadata service, no proxy.

    Raises:
        SettingsError: botocore (extra `rekognition`) is not installed, the key is missing, or the address is invalid.
    """

    operations: Mapping[str, str] = {feature: operation.name for feature, operation in _OPERATIONS.items()}
    supported_features = frozenset(operations)

    def __init__(self, settings: ProviderSettings) -> None:
        token = settings.options.get(SESSION_TOKEN_OPTION) or None
        super().__init__(settings, secrets=() if token is None else (token,))
        keys = key_pair(settings, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        self._errors = self._import_extra("botocore.exceptions", "rekognition")
        self._parsers = self._import_extra("botocore.parsers", "rekognition")
        self._timeout_s = settings.timeout_s
        try:
            self._client = self._create_client(settings, keys, token)
        except (ValueError, self._errors.BotoCoreError) as error:
            raise SettingsError(f"The address or the region of the back end {self.name} is wrong: {error}") from error
        self.connections.callback(self._client.close)

    def _create_client(self, settings: ProviderSettings, keys: tuple[str, str], token: str | None) -> Any:
        region = settings.options.get(REGION_OPTION) or DEFAULT_REGION
        config = self._import_extra("botocore.config", "rekognition").Config(
            connect_timeout=settings.timeout_s,
            read_timeout=settings.timeout_s,
            max_pool_connections=settings.concurrency,
            retries={"total_max_attempts": 1},  # `Retrier` counts retries and applies the deadline
            proxies={},
            ignore_configured_endpoint_urls=True,
        )
        return self._session().create_client(
            "rekognition",
            region_name=region,
            endpoint_url=settings.base_url.replace("{region}", region),
            verify=True,
            aws_access_key_id=keys[0],
            aws_secret_access_key=keys[1],
            aws_session_token=token,
            config=config,
        )

    def _session(self) -> Any:
        """Return a botocore session that reads neither environment variables nor configuration files."""
        session = self._import_extra("botocore.session", "rekognition").Session
        variables: dict[str, Any] = {"config_file": os.devnull, "credentials_file": os.devnull}
        isolated = {
            name: (None, None, variables.get(name, default), kind)  # no key of a file, no environment variable
            for name, (_, _, default, kind) in session.SESSION_VARIABLES.items()
        }
        return session(session_vars=isolated)

    def _request(self, feature: str, picture: EncodedPicture, timeout_s: float) -> Any:  # noqa: ARG002 (the client has a timeout)
        operation = _OPERATIONS[feature]
        return operation.read(self._send(operation, picture), picture, self.name)

    def _send(self, operation: _Operation, picture: EncodedPicture) -> dict[str, Any]:
        errors = self._errors
        try:
            answer: dict[str, Any] = getattr(self._client, operation.method)(
                Image={"Bytes": picture.jpeg}, **operation.arguments
            )
        except errors.ClientError as error:
            raise _to_call_failed(error.response) from None
        except (errors.ReadTimeoutError, errors.ConnectTimeoutError):
            message = f"no answer within {self._timeout_s:g} s"
            raise CallFailed(FailureKind.TIMEOUT, message, is_transient=True) from None
        except errors.HTTPClientError as error:
            raise CallFailed(FailureKind.BROKEN, f"{type(error).__name__}: {error}", is_transient=True) from None
        except self._parsers.ResponseParserError as error:
            raise CallFailed(FailureKind.MALFORMED, str(error)) from None
        except errors.BotoCoreError as error:
            raise CallFailed(FailureKind.BROKEN, f"{type(error).__name__}: {error}") from None
        except _PARSER_ERRORS as error:  # botocore's parser raises them for wrong JSON types
            raise CallFailed(FailureKind.MALFORMED, f"{type(error).__name__}: {error}") from None
        return answer


def _to_call_failed(response: dict[str, Any]) -> CallFailed:
    error, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    code, status = str(error.get("Code", "")), metadata.get("HTTPStatusCode", 0)
    message = f"{code}: {error.get('Message', '')}"
    if code in _THROTTLED:
        wait_s = retry_after_s(metadata.get("HTTPHeaders", {}), None, time.time())
        return CallFailed(FailureKind.THROTTLED, message, is_transient=True, retry_after_s=wait_s)
    if status >= _SERVER_ERROR:
        return CallFailed(FailureKind.BROKEN, message, is_transient=True)
    return CallFailed(FailureKind.REFUSED, message)
