"""Pydantic models of the JSON answers of the analysis service, in the older and the newer version of its HTTP API.

The field `source` of a tag, color and so on is the name of the back end that gave it. Fields that a class does not know
are kept. Fields that an answer lacks are None or empty.
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

Amount = int | Annotated[float, Field(allow_inf_nan=False)]
"""An amount of credits: whole, or a fraction where a service charges fractions."""


class ResponseModel(BaseModel):
    """Base class of the service's JSON answers and their parts; unknown fields are kept, not refused."""

    model_config = ConfigDict(extra="allow")


class Tag(ResponseModel):
    """A tag of an image or frame; `score` is 0 to 1, `source` the back end that found it (None in some old answers)."""

    name: str
    score: float | None = None
    source: str | None = None


class Color(ResponseModel):
    """A dominant color; `score` is its prominence, and `pixel_fraction` its share of the pixels, both 0 to 1.

    `hex` has the form `#rrggbb`. `red`, `green` and `blue` are 0 to 255.
    """

    hex: str
    score: float | None = None
    pixel_fraction: float | None = None
    red: int | None = None
    green: int | None = None
    blue: int | None = None
    source: str | None = None


class Nsfw(ResponseModel):
    """A moderation label, such as `adult`. It has a `score` (0 to 1) or a `likelihood` (such as `VERY_LIKELY`)."""

    label: str
    score: float | None = None
    likelihood: str | None = None
    source: str | None = None


class Description(ResponseModel):
    """A description of an image or frame; `source` is the back end that wrote it."""

    description: str
    source: str | None = None


class Face(ResponseModel):
    """A face in an image or frame; `source` is the back end. All other fields depend on the back end and are kept."""

    source: str | None = None


class Text(ResponseModel):
    """A text that a back end read in an image or frame; `bounding_poly` is `{"vertices": [{"x", "y"}]}` in pixels.

    Attributes:
        score: How sure the back end is, 0 to 1.
        is_full_text: True if `text` is all the text in the picture, False if it is a part; None if the service does not
            say.
    """

    text: str | None = None
    bounding_poly: dict[str, Any] | None = None
    score: float | None = None
    is_full_text: bool | None = None
    source: str | None = None


class Brand(ResponseModel):
    """A logo or brand in an image or frame; `bounding_poly` is `{"vertices": [{"x", "y"}]}` in pixels.

    `score` is how sure the back end `source` is, 0 to 1.
    """

    name: str | None = None
    score: float | None = None
    bounding_poly: dict[str, Any] | None = None
    source: str | None = None


def _reject_partial_vector(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Return a validated embedding vector; if any coordinate is invalid, raise one ValueError for the whole vector."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError("must be a list of numbers, one at least") from None


class Embedding(ResponseModel):
    """Embedding vector of an image or frame; an answer has it only if the request names the feature `embeddings`.

    Attributes:
        model: Name and version of the model; vectors of different models cannot be compared.
        vector: Coordinates of the vector, which has length 1 (L2 norm).
        source: The back end that computed the vector; None if the answer does not name it.
    """

    model: str
    vector: Annotated[list[float], FailFast(), Field(min_length=1), WrapValidator(_reject_partial_vector)]
    source: str | None = None


def flat_brands(value: Any) -> Any:
    """Convert brands from an object, brand name → entries, to a list of entries with `name`; keep lists as they are."""
    if not isinstance(value, dict):
        return value
    return [
        {"name": name, **entry} if isinstance(entry, dict) else {"name": name}
        for name, entries in value.items()
        for entry in (entries if isinstance(entries, list) else [entries])
    ]


class Entries(ResponseModel):
    """Results of all back ends for an image, a video, or one frame of a video.

    The keys of `tags` are tag names (case-sensitive), and the keys of `colors` are hex strings. Each value is a list
    with one entry for each back end that found the tag or color.
    """

    tags: dict[str, list[Tag]] = Field(default_factory=dict)
    colors: dict[str, list[Color]] = Field(default_factory=dict)
    nsfw: list[Nsfw] = Field(default_factory=list)
    descriptions: list[Description] = Field(default_factory=list)
    faces: list[Face] | None = None
    texts: list[Text] | None = None
    brands: Annotated[list[Brand] | None, BeforeValidator(flat_brands)] = None
    embeddings: list[Embedding] | None = None


class FrameEntries(Entries):
    """Results for one captured frame of a video; some services return no results for single frames.

    Attributes:
        index: 0 for the first captured frame, 1 for the next, and so on.
        time: Time of the frame, in seconds from the start of the video.
    """

    index: int
    time: float


class Asset(Entries):
    """Results for one analyzed image or video; `name` may be a path on the server, or the URL after a redirect."""

    name: str | None = None
    frames: list[FrameEntries] | None = None


class Results(ResponseModel):
    """The object `all` in an answer: results for each image or video, and error texts.

    An error text is about one image, video, back end or feature. Results that the answer has are valid even then.
    """

    assets: list[Asset] = Field(default_factory=list)
    errors: list[Any] = Field(default_factory=list)


class Answer(ResponseModel):
    """Any JSON answer of /api/fetch and /api/response/<id>: request accepted, in progress, results, or an error.

    Fields that are not described here repeat the request.

    Attributes:
        request_id: The service's id of the request.
        user_id: Number of the account.
        files: Number of files in the request.
        success: True if the service accepted the request and the client must poll for the results.
        status: `queued`, `processing`, `completed`, `failed`, or another text; None in older versions of the API.
        response_uri: URL at which the client polls for the results; None if the answer names no such URL.
        credits_paid: Credits charged for this request; None if the answer does not say.
        credits: Balance of the account in credits after this request; None if the answer does not say.
        all: Results; None until there are results.
        error: Error text if the request was refused or failed; else None.
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
    credits_paid: Amount | None = None
    credits: Amount | None = None
    all: Results | None = None
    error: str | None = None


class Credits(ResponseModel):
    """Answer of GET /api/credits: the account's balance in credits; one credit is worth one cent.

    Some services tell a fraction, or a number that is too large for an exact JSON number.
    """

    credits: Amount


class BackendOffer(ResponseModel):
    """A back end (model or provider) that a service offers.

    Attributes:
        name: Name of the back end in requests.
        features: Feature → price in credits of one image or one video frame, 0 or more, before any rounding.
        default: Whether a request that names no back end uses it.
        local: Whether the back end runs on the service's own machine, with no provider behind it.
        available: Whether requests can use the back end now.
        reason: Why the back end is not available; None if it is available.
        model: Model that the back end runs.
        licence: License of the model, or the provider's terms.
        alias_of: If `name` is an alias, the back end's real name, which is also the `source` in results; else None.
        follows_prompt: Whether its descriptions follow the prompt, role and language of a request; None if the service
            does not say.
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
    follows_prompt: bool | None = None


def _known_rounding(value: object) -> object:
    return value if value in ("image", "request") else None


class Backends(ResponseModel):
    """Answer of GET /api/backends: the back ends that a service offers. Some services lack this endpoint.

    Attributes:
        backends: The back ends.
        rounding: What the service rounds up to whole credits: the price of each image or video frame (`image`), or of
            each request (`request`); None if the service states neither.
    """

    backends: list[BackendOffer]
    rounding: Annotated[Literal["image", "request"] | None, BeforeValidator(_known_rounding)] = None


class ErrorBody(ResponseModel):
    """JSON body of every HTTP error response of the service."""

    error: str
    status: str | None = None
