"""What a back end is: a name, the features it offers, and one call that looks at pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lightmeter.media.image_transforms import FitWithin, InputTransform
from lightmeter.models.response import Entries
from lightmeter.models.vocabulary import DEFAULT_ROLE

__all__ = [
    "MAX_SIDE",
    "RGB",
    "AnalysisOptions",
    "Backend",
    "BackendTraits",
    "ComposingBackend",
    "traits_of",
]

RGB: TypeAlias = NDArray[np.uint8]
"""A picture: height by width by 3, red green blue, 0 to 255, upright (EXIF orientation applied), for reading only."""

MAX_SIDE: Final = 1024
"""Pixels of the longer side that a back end gets which does not say what it looks at."""

WHOLE: Final = FitWithin(MAX_SIDE)


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What a request asks beyond its features; only some back ends care.

    Attributes:
        role: Persona of descriptions.
        language: Language of descriptions.
        prompt: Own prompt for descriptions, or None.
    """

    role: str = DEFAULT_ROLE
    language: str = "English"
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """How a back end likes to be called.

    Attributes:
        calls_at_once: Threads that may be inside `analyze` at the same time.
        pictures_a_call: As many as it gains from getting at once, as on a graphics card. Nobody waits for them to
            come together: what waits already is taken.
        view: What it looks at: pictures come as that. Saying so saves copies of whole pictures.
    """

    calls_at_once: int = 1
    pictures_a_call: int = 1
    view: InputTransform = WHOLE


@runtime_checkable
class Backend(Protocol):
    """One source of entries.

    A back end is called from one thread at a time and with one picture at a time, unless it has a further attribute
    `traits` (`BackendTraits`) that says otherwise. One of another package has an attribute `prices` too
    (`read_own_prices`). Its answers for a picture never depend on the other pictures of the call, which may belong to
    other requests. Scores below a request's `tag_score` are filtered by the service, not here.

    A class that an entry point names may say more of itself, for the list of back ends: `model` and `licence` (short
    texts) and `prices` (credits for each picture, by feature).

    Coordinates of texts, brands and faces are in pixels of the picture that the back end was given: `x` and `y` of
    `vertices`, `left`, `top`, `width` and `height` of a box. The service turns them into pixels of the asset
    (`service.workshop.coordinates`).

    Attributes:
        name: Lowercase; the `backend` of requests, the `source` of entries and the key of the price table.
        features: Which features it offers; the extra ones (`EXTRA_FEATURES`) are answered where they are named only.
    """

    name: str
    features: frozenset[str]

    def warm(self) -> None:
        """Load what is slow to load. Called once, off the event loop, before the first `analyze`.

        Raises:
            BackendError: the model cannot be loaded; the message says what to install or set.
        """
        ...

    def analyze(self, pictures: Sequence[RGB], features: frozenset[str], options: AnalysisOptions) -> list[Entries]:
        """Look at pictures; one `Entries` for each, in order, with only the features asked for filled in.

        Raises:
            BackendError: the pictures cannot be analysed; the message is what the caller reads in
                `all.errors`.
        """
        ...


@runtime_checkable
class ComposingBackend(Protocol):
    """A back end that looks at no picture: it composes its entries from those of other back ends.

    Attributes:
        name: As of a `Backend`.
        features: As of a `Backend`.
        builds_on: Features it needs, by the name of the back end that finds them. They are found for it whether the
            request names that back end or not; a request pays only for what it names.
    """

    name: str
    features: frozenset[str]
    builds_on: Mapping[str, frozenset[str]]

    def compose(self, found: Mapping[str, Entries], options: AnalysisOptions) -> Entries:
        """Compose the entries of one picture; quick, because it runs on the event loop.

        Args:
            found: What the other back ends found in this picture, by name; those that failed are absent.
            options: What the request asks beyond its features.

        Raises:
            BackendError: it cannot be done; the message is what the caller reads in `all.errors`.
        """
        ...


def traits_of(backend: Backend | ComposingBackend) -> BackendTraits:
    """What a back end says of itself; the careful default if it says nothing."""
    traits = getattr(backend, "traits", None)
    return traits if isinstance(traits, BackendTraits) else BackendTraits()
