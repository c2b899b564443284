"""What the adapters of picture analysis providers share: one loop over pictures, JPEG bytes, and scores."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import Any, ClassVar, Final, TypeVar

from PIL import Image

from lightmeter.errors import SettingsError
from lightmeter.models.response import Entries, Tag
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.providers.provider import ProviderSettings, Usage
from lightmeter.service.backends.providers.retry import Retrier

__all__ = [
    "JPEG_QUALITY",
    "MAX_TAGS",
    "EncodedPicture",
    "PictureAdapter",
    "import_extra",
    "key_pair",
    "score_of",
    "tags_of",
]

T = TypeVar("T")

JPEG_QUALITY: Final = 90
"""Of the pictures that are sent: at 1024 pixels a side, 90 to 250 kB and 4 ms of CPU each (the sample data)."""

MAX_TAGS: Final = 50
"""Most tags for one picture, the likeliest first."""


@dataclass(frozen=True, slots=True)
class EncodedPicture:
    """A picture as it is sent.

    Attributes:
        jpeg: Its bytes, as JPEG.
        width: In pixels; coordinates in entries are in these pixels.
        height: In pixels.
        deadline: No call for it starts later; see `Retrier.deadline`.
    """

    jpeg: bytes
    width: int
    height: int
    deadline: float


class PictureAdapter(ABC):
    """A back end whose pictures are analysed by a provider over the network.

    Pictures are sent one by one, as JPEG of at most 1024 pixels a side, and only for the features that are requested.
    Where a picture needs several calls and one of them fails, the picture fails.

    Args:
        settings: Name, address, keys, limits.
        secrets: Strings that no message may show, beside the keys.

    Attributes:
        licence: Under which terms its answers come.
        supported_features: Features that the adapter knows how to request.

    Raises:
        SettingsError: the settings name a feature that it does not know, or a key that no provider can have given.
    """

    licence: ClassVar[str] = "terms of the provider"
    supported_features: ClassVar[frozenset[str]]

    def __init__(self, settings: ProviderSettings, secrets: Sequence[str] = ()) -> None:
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
        self.traits = BackendTraits(calls_at_once=settings.concurrency)
        self._metrics = settings.metrics
        self._retrier = Retrier(settings, secrets)

    @property
    @abstractmethod
    def model(self) -> str:
        """Name of the model or the operations that answer."""

    def warm(self) -> None:  # noqa: B027 (there is nothing to do for any provider)
        """Nothing to load: the provider is called for the first picture, not before."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections; the adapter is not used any more."""

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (these features depend on no option)
    ) -> list[Entries]:
        """Send each picture to the provider; coordinates are in pixels of the picture handed in.

        Raises:
            BackendError: the provider refused, failed, limits the rate, did not answer in time, or its answer cannot
                be read.
        """
        wanted = features & self.features
        if not wanted:
            return [Entries() for _ in pictures]
        return [self._entries(self._encoded(picture), wanted) for picture in pictures]

    def _encoded(self, picture: RGB) -> EncodedPicture:
        buffer = BytesIO()
        Image.fromarray(picture).save(buffer, "JPEG", quality=JPEG_QUALITY)
        height, width = picture.shape[:2]
        return EncodedPicture(buffer.getvalue(), width, height, self._retrier.deadline())

    def call(self, operation: str, call: Callable[[float], T], picture: EncodedPicture) -> T:
        """Make one call, with retries, and count it.

        Args:
            operation: Model or operation that is called, for the metrics.
            call: Makes one call within a number of seconds; raises `CallFailed`.
            picture: The picture whose deadline holds for all its calls.

        Raises:
            BackendError: the call failed for good.
        """
        answer = self._retrier.run(call, picture.deadline)
        self._metrics.provider_usage(self.name, Usage(operation))
        return answer

    @abstractmethod
    def _entries(self, picture: EncodedPicture, features: frozenset[str]) -> Entries:
        """What the provider finds in one picture; raises `BackendError`."""


def _is_sendable(key: str) -> bool:
    """Whether a key can stand in a header; libraries show one that cannot in their messages, escaped."""
    return key.isascii() and key.isprintable() and " " not in key


def score_of(value: float, scale: float = 1.0) -> float:
    """A score 0 to 1, rounded to six digits; 0 for what is not finite.

    Args:
        value: As the provider answered it.
        scale: What stands for certainty: 1, or 100 for per cent.
    """
    return round(min(max(value / scale, 0.0), 1.0), 6) if math.isfinite(value) else 0.0


def tags_of(named: Iterable[tuple[str, float]], source: str) -> dict[str, list[Tag]]:
    """Tags by name, the likeliest first, `MAX_TAGS` at most; of two with the same name the likelier stays.

    Args:
        named: Name and score 0 to 1.
        source: Name of the back end.
    """
    tags: dict[str, list[Tag]] = {}
    for name, score in sorted(named, key=lambda pair: -pair[1]):
        if name and name not in tags and len(tags) < MAX_TAGS:
            tags[name] = [Tag(name=name, score=score, source=source)]
    return tags


def import_extra(module: str, backend: str, extra: str) -> Any:
    """Import a module of an optional package, when an adapter is made.

    Args:
        module: Its name.
        backend: Name of the back end that needs it.
        extra: The extra of this package that brings it.

    Raises:
        SettingsError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise SettingsError(
            f"The back end {backend} needs a package that is missing: pip install 'lightmeter[{extra}]'."
        ) from error


def key_pair(settings: ProviderSettings, key_variable: str, secret_variable: str) -> tuple[str, str]:
    """The two halves of a key.

    Args:
        settings: With `api_key` and `api_secret`.
        key_variable: Environment variable that sets the first, for the message.
        secret_variable: Environment variable that sets the second.

    Raises:
        SettingsError: one of them is missing.
    """
    if settings.api_key is None or settings.api_secret is None:
        raise SettingsError(f"The back end {settings.name} has no key: set {key_variable} and {secret_variable}.")
    return settings.api_key.get_secret_value(), settings.api_secret.get_secret_value()
