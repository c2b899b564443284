"""Every answer of the service, in both dialects. Unknown fields are kept, missing ones are None or empty."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

__all__ = [
    "Answer",
    "Asset",
    "BackendOffer",
    "Backends",
    "Brand",
    "Color",
    "Credits",
    "Description",
    "Embedding",
    "Entries",
    "ErrorBody",
    "Face",
    "FrameEntries",
    "Nsfw",
    "Results",
    "Tag",
    "Text",
]


class Wire(BaseModel):
    """Anything on the wire: unknown fields are kept, never refused."""

    model_config = ConfigDict(extra="allow")


class Tag(Wire):
    """What is seen: a name, a score 0 to 1, and the back end that says so (some samples carry none)."""

    name: str
    score: float | None = None
    source: str | None = None


class Color(Wire):
    """A dominant colour: `score` is its prominence, `pixel_fraction` its share of the picture, both 0 to 1."""

    hex: str
    score: float | None = None
    pixel_fraction: float | None = None
    red: int | None = None
    green: int | None = None
    blue: int | None = None
    source: str | None = None


class Nsfw(Wire):
    """One moderation label: with a `score` (numeric form) or a `likelihood` (likelihood form)."""

    label: str
    score: float | None = None
    likelihood: str | None = None
    source: str | None = None


class Description(Wire):
    """One description."""

    description: str
    source: str | None = None


class Face(Wire):
    """One face; the fields differ from back end to back end and are kept as they come."""

    source: str | None = None


class Text(Wire):
    """One text that was read; `bounding_poly` is `{"vertices": [{"x", "y"}]}` in pixels.

    Attributes:
        is_full_text: Whether it is all the text of the picture, or a part of it; an extension of the contract.
    """

    text: str | None = None
    bounding_poly: dict[str, Any] | None = None
    score: float | None = None
    is_full_text: bool | None = None
    source: str | None = None


class Brand(Wire):
    """One logo or brand; `bounding_poly` is `{"vertices": [{"x", "y"}]}` in pixels."""

    name: str | None = None
    score: float | None = None
    bounding_poly: dict[str, Any] | None = None
    source: str | None = None


def _whole_or_wrong(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One wrong coordinate makes the vector wrong: readers that leave out wrong entries must not shorten it."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError("must be a list of numbers, one at least") from None


class Embedding(Wire):
    """A picture as a point: an extension of the contract, answered only where the feature `embeddings` is requested.

    Attributes:
        model: Names the model and its version: vectors of different models cannot be compared.
        vector: Its coordinates, of unit length (L2 norm 1).
    """

    model: str
    vector: Annotated[list[float], FailFast(), Field(min_length=1), WrapValidator(_whole_or_wrong)]
    source: str | None = None


def _flat_brands(value: Any) -> Any:
    """Brands come as a list, or as an object name → list of entries."""
    if not isinstance(value, dict):
        return value
    return [
        {"name": name, **entry} if isinstance(entry, dict) else {"name": name}
        for name, entries in value.items()
        for entry in (entries if isinstance(entries, list) else [entries])
    ]


class Entries(Wire):
    """What the back ends found: in a whole asset, or in one frame of a video.

    `tags` and `colors` are keyed by tag name (case-sensitive) and hex string, with one entry for each back end.
    """

    tags: dict[str, list[Tag]] = Field(default_factory=dict)
    colors: dict[str, list[Color]] = Field(default_factory=dict)
    nsfw: list[Nsfw] = Field(default_factory=list)
    descriptions: list[Description] = Field(default_factory=list)
    faces: list[Face] | None = None
    texts: list[Text] | None = None
    brands: Annotated[list[Brand] | None, BeforeValidator(_flat_brands)] = None
    embeddings: list[Embedding] | None = None


class FrameEntries(Entries):
    """One captured frame of a video: our extension, absent from other services.

    Attributes:
        index: 0 for the first captured frame, 1 for the next, and so on.
        time: Seconds from the start of the video.
    """

    index: int
    time: float


class Asset(Entries):
    """One analysed image or video; `name` may be a server-side path or a redirected URL."""

    name: str | None = None
    frames: list[FrameEntries] | None = None


class Results(Wire):
    """The object `all`: the assets, and the errors of single back ends (strings, usually with no URL in them)."""

    assets: list[Asset] = Field(default_factory=list)
    errors: list[Any] = Field(default_factory=list)


class Answer(Wire):
    """Any JSON answer of /api/fetch and /api/response/<id>: echo, acknowledgment, progress, result, or error.

    Attributes:
        status: `queued`, `processing`, `completed`, `failed`, a later word, or None in the older dialect.
        credits_paid: Charged for this request.
        credits: Remaining balance after it.
        all: The results; None until there are some.
        error: The error text; present in refusals and failures.
    """

    request_id: str | None = None
    user_id: int | None = None
    urls: list[str] | None = None
    files: int | None = None
    file_names: list[str] | None = None
    features: list[str] | None = None
    backends: list[str] | None = None
    role: str | None = None
    language: str | None = None
    prompt: str | None = None
    tag_score: float | None = None
    capture_interval: int | None = None
    max_frames: int | None = None
    success: bool | None = None
    status: str | None = None
    response_uri: str | None = None
    credits_paid: int | None = None
    credits: int | None = None
    all: Results | None = None
    error: str | None = None


class Credits(Wire):
    """Answer of GET /api/credits; one credit is one cent."""

    credits: int


class BackendOffer(Wire):
    """A back end that a service offers.

    Attributes:
        name: What a request calls it.
        features: Feature → credits for each image or video frame, 0 or more, before any rounding.
        default: Whether a request that names no back end uses it.
        local: Whether it runs on the service's own machine, with no provider behind it.
        available: Whether it can be asked now.
        reason: Why it cannot.
        model: The model behind it.
        licence: The licence of the model, or whose terms apply.
        alias_of: The back end that answers in its place, and is the `source` of the entries.
    """

    name: Annotated[str, Field(min_length=1)]
    features: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    default: bool = False
    local: bool = False
    available: bool = True
    reason: str | None = None
    model: str | None = None
    licence: str | None = None
    alias_of: str | None = None


class Backends(Wire):
    """Answer of GET /api/backends, which not every service has."""

    backends: list[BackendOffer]


class ErrorBody(Wire):
    """Body of every refusal."""

    error: str
    status: str | None = None
