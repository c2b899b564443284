"""JSON answers of the analysis service, in the older and the newer version of its HTTP API.

Unknown fields are kept; missing ones are None or empty.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
    """Base class of the service's JSON answers and their parts: unknown fields are kept, not refused."""

    model_config = ConfigDict(extra="allow")


class Tag(Wire):
    """A tag of an image or frame: name, score (0 to 1), and `source`, the back end (None in some old answers)."""

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
    """A moderation label, such as `adult`, with a `score` (0 to 1) or a `likelihood` (such as `VERY_LIKELY`)."""

    label: str
    score: float | None = None
    likelihood: str | None = None
    source: str | None = None


class Description(Wire):
    """A description of an image or frame; `source` is the back end that wrote it."""

    description: str
    source: str | None = None


class Face(Wire):
    """A face in an image or frame; fields besides `source` (the back end) depend on the back end, and are kept."""

    source: str | None = None


class Text(Wire):
    """A text that a back end read in an image or frame; `bounding_poly` is `{"vertices": [{"x", "y"}]}` in pixels.

    Attributes:
        is_full_text: Whether `text` is all text of the picture, not a part; None if the service does not say.
    """

    text: str | None = None
    bounding_poly: dict[str, Any] | None = None
    score: float | None = None
    is_full_text: bool | None = None
    source: str | None = None


class Brand(Wire):
    """A logo or brand in an image or frame; `bounding_poly` is `{"vertices": [{"x", "y"}]}` in pixels."""

    name: str | None = None
    score: float | None = None
    bounding_poly: dict[str, Any] | None = None
    source: str | None = None


def _reject_partial_vector(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Return a validated embedding vector; if any coordinate is invalid, raise a ValueError about the whole vector."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError("must be a list of numbers, one at least") from None


class Embedding(Wire):
    """Embedding vector of an image or frame; present only if the request names the feature `embeddings`.

    Attributes:
        model: Model and version; vectors of different models cannot be compared.
        vector: Coordinates, of unit length (L2 norm 1).
    """

    model: str
    vector: Annotated[list[float], FailFast(), Field(min_length=1), WrapValidator(_reject_partial_vector)]
    source: str | None = None


def _flat_brands(value: Any) -> Any:
    """Convert brands given as an object, brand name → entries, to a list of entries with `name`; leave lists as is."""
    if not isinstance(value, dict):
        return value
    return [
        {"name": name, **entry} if isinstance(entry, dict) else {"name": name}
        for name, entries in value.items()
        for entry in (entries if isinstance(entries, list) else [entries])
    ]


class Entries(Wire):
    """Results of all back ends for an image, a video, or one frame of a video.

    The keys of `tags` are tag names (case-sensitive), those of `colors` are hex strings; each value has one entry for
    each back end that found the tag or color.
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
    """Results for one captured frame of a video; some services do not return results for single frames.

    Attributes:
        index: 0 for the first captured frame, 1 for the next, and so on.
        time: Seconds from the start of the video.
    """

    index: int
    time: float


class Asset(Entries):
    """Results for one analyzed image or video; `name` may be a path on the server or the URL after a redirect."""

    name: str | None = None
    frames: list[FrameEntries] | None = None


class Results(Wire):
    """The object `all` in an answer: results for each image or video, and error texts.

    An error text is about one image, video, back end or feature; the other results are valid.
    """

    assets: list[Asset] = Field(default_factory=list)
    errors: list[Any] = Field(default_factory=list)


class Answer(Wire):
    """Any JSON answer of /api/fetch and /api/response/<id>: request accepted, in progress, results, or an error.

    Most fields not listed here repeat the request.

    Attributes:
        status: `queued`, `processing`, `completed`, `failed`, or another text; None in older versions of the API.
        credits_paid: Credits charged for this request.
        credits: Balance of the account after this request.
        all: Results; None until there are some.
        error: Error text if the request was refused or failed.
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
    """Answer of GET /api/credits: the account's balance in credits; one credit is worth one cent."""

    credits: int


class BackendOffer(Wire):
    """A back end (model or provider) that a service offers.

    Attributes:
        name: Name of the back end in requests.
        features: Feature → credits for each image or video frame, 0 or more, before any rounding.
        default: Whether a request that names no back end uses it.
        local: Whether the back end runs on the service's own machine, with no provider behind it.
        available: Whether requests can use the back end now.
        reason: Why the back end is not available; None if it is.
        model: Model that the back end runs.
        licence: License of the model, or the provider's terms.
        alias_of: Name of the back end for which `name` is an alias, and which is the `source` in results; None if
            `name` is no alias.
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


def _known_rounding(value: object) -> object:
    return value if value in ("image", "request") else None


class Backends(Wire):
    """Answer of GET /api/backends: the back ends that a service offers. Some services lack this endpoint.

    Attributes:
        backends: The back ends.
        rounding: What the service rounds up to whole credits: each image or video frame (`image`), or each `request`;
            None if the service does not say, or says something else.
    """

    backends: list[BackendOffer]
    rounding: Annotated[Literal["image", "request"] | None, BeforeValidator(_known_rounding)] = None


class ErrorBody(Wire):
    """JSON body of every HTTP error response of the service."""

    error: str
    status: str | None = None
