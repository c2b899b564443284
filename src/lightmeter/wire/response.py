"""Answers of the service, in the older and the newer dialect of the wire contract.

Unknown fields are kept; missing ones are None or empty.
"""

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


class Wire(BaseModel):
    """Base of all wire models: unknown fields are kept, not refused."""

    model_config = ConfigDict(extra="allow")


class Tag(Wire):
    """One tag: a name, a score 0 to 1, and the back end that found it (None in some old answers)."""

    name: str
    score: float | None = None
    source: str | None = None


class Color(Wire):
    """A dominant color: `score` is its prominence, `pixel_fraction` its fraction of the picture, both 0 to 1."""

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
    """One description, as text."""

    description: str
    source: str | None = None


class Face(Wire):
    """One face; its further fields depend on the back end and are kept unchanged."""

    source: str | None = None


class Text(Wire):
    """One text that was read; `bounding_poly` is `{"vertices": [{"x", "y"}]}` in pixels.

    Attributes:
        is_full_text: Whether it is the whole text of the picture or a part of it; an extension of the contract.
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


def _reject_partial_vector(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Reject the whole vector if one coordinate is invalid: lenient readers drop single entries of lists."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError("must be a list of numbers, one at least") from None


class Embedding(Wire):
    """Embedding vector of a picture: an extension of the contract, only if the feature `embeddings` is requested.

    Attributes:
        model: Model and version; vectors of different models cannot be compared.
        vector: Coordinates, of unit length (L2 norm 1).
    """

    model: str
    vector: Annotated[list[float], FailFast(), Field(min_length=1), WrapValidator(_reject_partial_vector)]
    source: str | None = None


def _flat_brands(value: Any) -> Any:
    """Convert brands that are an object, name → entries, to a list."""
    if not isinstance(value, dict):
        return value
    return [
        {"name": name, **entry} if isinstance(entry, dict) else {"name": name}
        for name, entries in value.items()
        for entry in (entries if isinstance(entries, list) else [entries])
    ]


class Entries(Wire):
    """Results of all back ends for an asset or for one frame of a video.

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
    """Results for one captured frame of a video; an extension that other services lack.

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
    """The object `all`: assets, and errors of single back ends (strings, usually without a URL)."""

    assets: list[Asset] = Field(default_factory=list)
    errors: list[Any] = Field(default_factory=list)


class Answer(Wire):
    """Any JSON answer of /api/fetch and /api/response/<id>: acknowledgment, progress, results or an error.

    Most other fields repeat the request.

    Attributes:
        status: `queued`, `processing`, `completed`, `failed`, a future status, or None in the older dialect.
        credits_paid: Charged for this request.
        credits: Remaining balance after it.
        all: Results; None until there are some.
        error: Error text of a refusal or failure.
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
    """Back end that a service offers.

    Attributes:
        name: Name in requests.
        features: Feature → credits for each image or video frame, 0 or more, before any rounding.
        default: Whether a request that names no back end uses it.
        local: Whether it runs on the service's own machine, with no provider behind it.
        available: Whether requests can use it now.
        reason: Why it is not available.
        model: Model that it runs.
        licence: License of the model, or the provider's terms.
        alias_of: Back end that answers in its place and is the `source` of the entries.
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
    """Answer of GET /api/backends, an endpoint that some services lack."""

    backends: list[BackendOffer]


class ErrorBody(Wire):
    """Body of every error response."""

    error: str
    status: str | None = None
