"""Base class of the adapters for vision APIs: encodes pictures as JPEG, makes calls with retries, converts scores."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import BoundedSemaphore, Thread
from typing import Any, ClassVar, Final, TypeVar

from lightmeter.errors import BackendError, SettingsError
from lightmeter.extras import import_extra
from lightmeter.media.image import encode_jpeg
from lightmeter.service.backends.base import RGB, BackendTraits, PartialEntries, PictureBackend
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind
from lightmeter.service.backends.providers.provider import ProviderSettings, Usage
from lightmeter.service.backends.providers.retry import Retrier
from lightmeter.wire.response import Entries, Tag

log = logging.getLogger("lightmeter.service")

T = TypeVar("T")

JPEG_QUALITY: Final = 90
"""JPEG quality of sent pictures, 1 to 95. On the sample data, at 1024 pixels a side, a picture takes 90 to 250 kB
and 4 ms of CPU time."""

MAX_TAGS: Final = 50
"""Maximum number of tags for one picture; the tags with the highest scores are kept."""


@dataclass(frozen=True, slots=True)
class EncodedPicture:
    """Picture that is encoded as JPEG, to be sent to a provider.

    Attributes:
        jpeg: JPEG bytes.
        width: Width of the picture, in pixels.
        height: Height of the picture, in pixels.
        deadline: Time after which no call for this picture starts, in seconds on the clock `time.monotonic`.
    """

    jpeg: bytes
    width: int
    height: int
    deadline: float


class VisionAdapter(PictureBackend):
    """Base class of back ends in which a provider's vision API analyzes pictures.

    Pictures are sent one by one, as JPEG of at most 1024 pixels a side, for the requested features only. Coordinates in
    the entries are in pixels of the picture that is sent.

    Args:
        settings: Name of the back end; the provider's address, keys and limits.
        secrets: Strings that no message may show, in addition to the keys.

    Attributes:
        supported_features: Features that the adapter can request.

    Raises:
        SettingsError: the settings name no feature or an unsupported one, or a key has characters that cannot be sent.
    """

    supported_features: ClassVar[frozenset[str]]

    def __init__(self, settings: ProviderSettings, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        unknown = settings.features - self.supported_features
        if unknown or not settings.features:
            raise SettingsError(
                f"The back end {settings.name} offers {', '.join(sorted(self.supported_features))},"
                f" not {', '.join(sorted(unknown)) or 'an empty list of features'}."
            )
        if not all(_is_sendable(key) for key in (*settings.secrets, *secrets)):
            raise SettingsError(
                f"A key of the back end {settings.name} holds a space, a line break or a character beyond ASCII:"
                " set it as the provider shows it."
            )
        self.name = settings.name
        self.features = settings.features
        self.traits = BackendTraits(calls_at_once=settings.concurrency, calls_network=True)
        self.connections = ExitStack()
        self._metrics = settings.metrics
        self._retrier = Retrier(settings, secrets)

    def close(self) -> None:
        """Close the connections, and make no more calls; the adapter cannot be used afterwards."""
        self._retrier.close()
        self.connections.close()

    def _import_extra(self, module: str, extra: str) -> Any:
        """Import a module of an optional dependency, which `pip install 'lightmeter[extra]'` installs.

        Raises:
            SettingsError: the package is not installed; the message names the command that installs it.
        """
        return import_extra(module, extra, f"The back end {self.name}")

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:
        height, width = picture.shape[:2]
        jpeg = encode_jpeg(picture, quality=JPEG_QUALITY)
        return self._entries(EncodedPicture(jpeg, width, height, self._retrier.deadline()), features)

    @abstractmethod
    def _entries(self, picture: EncodedPicture, features: frozenset[str]) -> Entries:
        """Call the provider and return the entries (tags, faces, …) of one picture, for the requested `features`.

        Raises:
            BackendError: a call failed, and so did its retries.
        """

    def call(self, operation: str, call: Callable[[float], T], picture: EncodedPicture) -> T:
        """Call the provider, and repeat the call after transient failures; return what `call` returns.

        The metrics count the call when it succeeds.

        Args:
            operation: Name of the model or operation, for the metrics.
            call: Makes one call; its argument is the time limit of the call, in seconds. It raises `CallFailed` if the
                call fails.
            picture: The picture to send; all calls for it share its deadline.

        Raises:
            BackendError: the call failed, and so did its retries.
        """
        answer = self._retrier.run(call, picture.deadline)
        self._metrics.provider_usage(self.name, Usage(operation))
        return answer


class OneCallPerFeature(VisionAdapter):
    """Base class of back ends that call a vision API once for each feature of a picture, for all features at once.

    If some of these calls fail, the results of the others, which the provider charges, are kept.

    Attributes:
        operations: Feature → name of the provider's operation or model that finds it. The metrics count calls by this
            name.
    """

    operations: Mapping[str, str]

    def __init__(self, settings: ProviderSettings, secrets: Sequence[str] = ()) -> None:
        super().__init__(settings, secrets)
        self._free_calls = BoundedSemaphore(settings.concurrency)

    def _entries(self, picture: EncodedPicture, features: frozenset[str]) -> Entries:
        found: dict[str, Any] = {}

        def call(feature: str) -> None:
            try:
                found[feature] = self.call(
                    self.operations[feature], partial(self._request_if_free, feature, picture), picture
                )
            except BackendError as error:
                found[feature] = error
            except Exception as error:  # in a thread, it would be lost
                log.exception("back end %s failed", self.name)
                found[feature] = BackendError(f"failed ({type(error).__name__})")

        first, *others = sorted(features)
        threads = [Thread(target=call, args=(feature,), name=self.name, daemon=True) for feature in others]
        for thread in threads:
            thread.start()
        call(first)
        for thread in threads:
            thread.join()
        return join_features({feature: found[feature] for feature in (first, *others)})

    def _request_if_free(self, feature: str, picture: EncodedPicture, timeout_s: float) -> Any:
        """Do the same as `_request`, as soon as fewer calls than the limit `concurrency` are in progress."""
        if not self._free_calls.acquire(timeout=timeout_s):
            raise CallFailed(FailureKind.TIMEOUT, "too many calls are in progress", is_transient=True)
        try:
            return self._request(feature, picture, timeout_s)
        finally:
            self._free_calls.release()

    @abstractmethod
    def _request(self, feature: str, picture: EncodedPicture, timeout_s: float) -> Any:
        """Make one call of the provider and return the entries of one feature, such as a list of faces.

        Args:
            feature: The feature, a key of `operations`.
            picture: The picture to send.
            timeout_s: Longest time for the call, in seconds.

        Raises:
            CallFailed: the call failed.
        """


def join_features(found: Mapping[str, Any]) -> Entries:
    """Return the entries of one picture; those of some features may be missing.

    Args:
        found: Feature → its entries, such as a list of faces, or the exception with which it failed.

    Raises:
        Exception: all features failed. For a single feature, it is its exception, otherwise a BackendError.
    """
    errors = {feature: each for feature, each in found.items() if isinstance(each, Exception)}
    if not errors:
        return Entries(**found)
    if len(errors) == len(found):
        first, *others = errors.values()
        raise BackendError(" ".join(dict.fromkeys(map(str, errors.values())))) if others else first
    answered = {feature: each for feature, each in found.items() if feature not in errors}
    return PartialEntries(**answered, failures={feature: str(error) for feature, error in errors.items()})


def _is_sendable(key: str) -> bool:
    """Return whether an API key consists of printable ASCII without spaces, so that an HTTP header can carry it.

    For any other key, the error messages of HTTP libraries would show parts of the key.
    """
    return key.isascii() and key.isprintable() and " " not in key


def to_score(value: float, scale: float = 1.0) -> float:
    """Convert a provider's value to a score, 0 to 1, with six decimal places.

    NaN and infinity become 0.

    Args:
        value: Value in the answer.
        scale: Value that stands for the score 1, such as 100 for percentages.
    """
    return round(min(max(value / scale, 0.0), 1.0), 6) if math.isfinite(value) else 0.0


def to_tags(scored_names: Iterable[tuple[str, float]], source: str) -> dict[str, list[Tag]]:
    """Return tag name → list of one `Tag`, highest score first, for at most `MAX_TAGS` names.

    If a name occurs more than once, its highest score counts. Empty names are ignored.

    Args:
        scored_names: Pairs of a tag's name and its score, 0 to 1.
        source: Name of the back end.
    """
    tags: dict[str, list[Tag]] = {}
    for name, score in sorted(scored_names, key=lambda pair: -pair[1]):
        if name and name not in tags and len(tags) < MAX_TAGS:
            tags[name] = [Tag(name=name, score=score, source=source)]
    return tags


def key_pair(settings: ProviderSettings, key_variable: str, secret_variable: str) -> tuple[str, str]:
    """Return both parts of the provider's key in plain text: `api_key` and `api_secret` of `settings`.

    Args:
        settings: Settings of the back end.
        key_variable: Environment variable that should hold the first part; only the error message names it.
        secret_variable: Environment variable that should hold the second part; only the error message names it.

    Raises:
        SettingsError: a part is missing; the message names both variables.
    """
    if settings.api_key is None or settings.api_secret is None:
        raise SettingsError(f"The back end {settings.name} has no key: set {key_variable} and {secret_variable}.")
    return settings.api_key.get_secret_value(), settings.api_secret.get_secret_value()
