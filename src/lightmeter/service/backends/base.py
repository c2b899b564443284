"""Protocols of back ends, which analyze pictures, and a base class for those that analyze one picture at a time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lightmeter.media.image_transforms import FitWithin, InputTransform
from lightmeter.wire.constants import DEFAULT_ROLE
from lightmeter.wire.response import Entries

RGB: TypeAlias = NDArray[np.uint8]
"""Picture as a read-only array, height x width x 3: RGB, 0 to 255, upright (EXIF orientation applied)."""

MAX_SIDE: Final = 1024
"""Longest side, in pixels, of the pictures that a back end gets if it declares no transform. Larger pictures are
shrunk."""

_DEFAULT_TRANSFORM: Final = FitWithin(MAX_SIDE)


class PartialEntries(Entries):
    """Entries of a picture for which a part of the requested features failed, such as one of a provider's calls.

    The entries of the other features are answered and charged.

    Attributes:
        failures: Feature that failed → why, as a sentence. It is no part of the answer's JSON.
    """

    failures: dict[str, str] = Field(exclude=True)


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Options of a request other than its features. Only back ends that describe pictures use them.

    Attributes:
        role: Persona that writes a description (such as `critic`), or the purpose of the description (`alttext`).
        language: Language of descriptions.
        prompt: Custom prompt for descriptions; None means the prompt that belongs to `role`.
    """

    role: str = DEFAULT_ROLE
    language: str = "English"
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """How the service calls a back end: how many threads and pictures at once, and in which size.

    Attributes:
        calls_at_once: Maximum number of threads that call `analyze` of the back end at the same time. If it is 2 or
            more, one more thread calls it for accounts that have no running call, so that none waits for the others.
        pictures_a_call: Maximum number of pictures in one call, such as the best batch size of a graphics card. A call
            gets the pictures that are already in the queue; the service does not wait for more.
        transform: Transform, such as a resize, that the service applies to each picture before the call. A small result
            saves memory and time.
        calls_network: Whether a call waits for another server, perhaps for minutes. When the service stops, it does not
            wait for such calls.
        deadline_s: Maximum seconds of a call. Then the pictures of the call fail, and another thread takes its place.
            The call itself cannot be stopped, so the back end may be called while it goes on.
    """

    calls_at_once: int = 1
    pictures_a_call: int = 1
    transform: InputTransform = _DEFAULT_TRANSFORM
    calls_network: bool = False
    deadline_s: float = 300.0


@runtime_checkable
class Backend(Protocol):
    """Protocol of a back end: a model or a provider's API that analyzes pictures and returns entries (tags, faces, …).

    A back end is called from one thread at a time and with one picture at a time, unless it has an attribute `traits`
    (`BackendTraits`). The entries of a picture must not depend on the other pictures of the call, which may belong to
    other requests. The service, not the back end, drops tags that score below a request's `tag_score`.

    A back end that another package installs has an attribute `prices` (credits for each picture, by feature). It may
    have `model` and `licence` (short texts), which the list of back ends shows, and `follows_prompt` (whether its
    descriptions follow a request's prompt; true by default).

    Coordinates of texts, brands and faces are in pixels of the picture that the back end gets: `x` and `y` of
    `vertices`; `left`, `top`, `width` and `height` of a box. The service converts them to pixels of the original image
    or video frame.

    Attributes:
        name: Lowercase; the `backend` of requests, the `source` of entries and the key in the price table.
        features: Features that it offers. Those in `EXTRA_FEATURES` are used only if a request names them.
    """

    name: str
    features: frozenset[str]

    def warm(self) -> None:
        """Load the model. The service calls this once, off the event loop, before the first `analyze`.

        Raises:
            BackendError: the model cannot be loaded; the message says what to install or set.
        """
        ...

    def analyze(self, pictures: Sequence[RGB], features: frozenset[str], options: AnalysisOptions) -> list[Entries]:
        """Analyze pictures; return one `Entries` for each, in order, with the requested features only.

        If only some of the features failed for a picture, its item is a `PartialEntries`.

        Args:
            pictures: One or more, at most `BackendTraits.pictures_a_call`.
            features: Requested features.
            options: Further options of the request.

        Raises:
            BackendError: the pictures cannot be analyzed. The answer to the request has the message in `all.errors`.
        """
        ...


@runtime_checkable
class SteppedBackend(Protocol):
    """Protocol of a back end that analyzes one picture in steps, because some pictures take many seconds.

    The service calls `analyze_in_steps` in place of `analyze`. Between two steps, pictures of other accounts have their
    turn. The steps of a picture may run in different threads, one after the other. Those of a picture whose client has
    gone, or whose steps together take longer than `BackendTraits.deadline_s`, are not continued.
    """

    def analyze_in_steps(
        self, picture: RGB, features: frozenset[str], options: AnalysisOptions
    ) -> Generator[None, None, Entries]:
        """Return a generator that yields after each step, and returns what `Backend.analyze` would for the picture.

        A step should take about a tenth of a second. The arguments and errors are those of `Backend.analyze`.
        """
        ...


class PictureBackend(ABC):
    """Base class of back ends that analyze one picture at a time and ignore the options (prompt, language) of requests.

    The models are loaded once, by the first call of `warm` or `analyze`, even if several threads call at the same time.
    """

    name: str
    features: frozenset[str]
    traits: BackendTraits = BackendTraits()

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._is_loaded = False

    def warm(self) -> None:
        """Load the models.

        Raises:
            BackendError: a model is missing or damaged.
        """
        with self._loading:
            if not self._is_loaded:
                self._load()
                self._is_loaded = True

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (no option has an effect)
    ) -> list[Entries]:
        """Return the entries (tags, faces, …) of each picture, in order.

        Args:
            pictures: Height x width x 3, RGB.
            features: Requested features; those that the back end does not offer have no effect.
            options: Not used.

        Raises:
            BackendError: a model cannot be loaded, or a picture cannot be analyzed.
        """
        offered = features & self.features
        if not offered:
            return [Entries() for _ in pictures]
        self.warm()
        return [self._analyze_picture(picture, offered) for picture in pictures]

    def _load(self) -> None:  # noqa: B027 (some back ends have no model)
        """Load the models; `warm` calls this once. A subclass without models does not override it."""

    @abstractmethod
    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:
        """Return the entries (tags, faces, …) of one picture.

        `features` holds the features to return: at least one, and only features that the back end offers.
        """


@runtime_checkable
class ComposingBackend(Protocol):
    """Protocol of a back end that gets results of other back ends, not pictures, for example to write a sentence.

    Attributes:
        builds_on: Name of another back end → the features whose results `compose` needs. The service runs that back
            end even if the request does not name it; the request pays only for what it names.
    """

    name: str
    features: frozenset[str]
    builds_on: Mapping[str, frozenset[str]]

    def compose(self, found: Mapping[str, Entries], options: AnalysisOptions) -> Entries:
        """Compose the entries for one picture, such as a description. Must be quick: it runs on the event loop.

        Args:
            found: Name of another back end → its entries for this picture; back ends that failed are absent.
            options: Further options of the request.

        Raises:
            BackendError: the entries cannot be composed. The answer to the request has the message in `all.errors`.
        """
        ...


def traits_of(backend: Backend | ComposingBackend) -> BackendTraits:
    """Return how the service calls a back end: its attribute `traits`, or the defaults if it has none."""
    traits = getattr(backend, "traits", None)
    return traits if isinstance(traits, BackendTraits) else BackendTraits()
