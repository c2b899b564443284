"""Adapter for Google Cloud Vision; it makes one REST call for each picture, with the requested features only.

Source: https://cloud.google.com/vision/docs/reference/rest/v1/images/annotate
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lightmeter.errors import SettingsError
from lightmeter.paths import local_path
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, retry_after_s
from lightmeter.service.backends.providers.http_client import RestClient, decode_json
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.adapter import (
    EncodedPicture,
    VisionAdapter,
    join_features,
    to_score,
    to_tags,
)
from lightmeter.service.backends.providers.vision.service_account import ServiceAccount
from lightmeter.wire.response import Brand, Color, Entries, Face, Nsfw, Text

DEFAULT_MODEL: Final = "builtin/stable"
"""Model that Google uses if a request names none."""

MAX_RESULTS: Final = 50
"""Maximum number of labels, of logos and of faces that a request asks for; the provider's default is 10."""

CREDENTIALS_OPTION: Final = "credentials_file"
"""Name of the option that holds the path of a service account's key file. It is used if no API key is set."""

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-vision"

_TYPES: Final = {
    "brands": "LOGO_DETECTION",
    "colors": "IMAGE_PROPERTIES",
    "faces": "FACE_DETECTION",
    "nsfw": "SAFE_SEARCH_DETECTION",
    "tags": "LABEL_DETECTION",
    "texts": "TEXT_DETECTION",
}

_DEADLINE_EXCEEDED: Final = 4
_RESOURCE_EXHAUSTED: Final = 8
_TRANSIENT_CODES: Final = frozenset({2, 10, 13, 14})
"""gRPC status codes after which the same call may succeed later: UNKNOWN, ABORTED, INTERNAL, UNAVAILABLE."""


class _Camel(msgspec.Struct, rename="camel", frozen=True):
    """Base class of the types of Google Vision's answer, whose fields have camelCase names in JSON.

    The types have only the fields that are used; unknown fields are ignored. The API omits zero and empty values, so
    nearly all fields have defaults.
    """


class Vertex(_Camel, frozen=True):
    """Corner of a polygon, in pixels of the picture."""

    x: float = 0.0
    y: float = 0.0


class BoundingPolygon(_Camel, frozen=True):
    """Polygon around a logo, text or face in a picture (`BoundingPoly` of the Cloud Vision API)."""

    vertices: tuple[Vertex, ...] = ()


class Annotation(_Camel, frozen=True):
    """Label, logo or text that Google found (`EntityAnnotation` of the Cloud Vision API); `score` is 0 to 1."""

    description: str = ""
    locale: str | None = None
    score: float = 0.0
    bounding_poly: BoundingPolygon = BoundingPolygon()


class FaceAnnotation(_Camel, frozen=True):
    """Face that Google found (`FaceAnnotation` of the Cloud Vision API); angles in degrees, confidences 0 to 1."""

    bounding_poly: BoundingPolygon = BoundingPolygon()
    roll_angle: float = 0.0
    pan_angle: float = 0.0
    tilt_angle: float = 0.0
    detection_confidence: float = 0.0
    landmarking_confidence: float = 0.0
    joy_likelihood: str = "UNKNOWN"
    sorrow_likelihood: str = "UNKNOWN"
    anger_likelihood: str = "UNKNOWN"
    surprise_likelihood: str = "UNKNOWN"
    under_exposed_likelihood: str = "UNKNOWN"
    blurred_likelihood: str = "UNKNOWN"
    headwear_likelihood: str = "UNKNOWN"


class SafeSearch(_Camel, frozen=True):
    """Likelihood words, such as `LIKELY`, for five types of unsafe content, in Google Vision's answer."""

    adult: str = "UNKNOWN"
    violence: str = "UNKNOWN"
    racy: str = "UNKNOWN"
    medical: str = "UNKNOWN"
    spoof: str = "UNKNOWN"


class Channels(_Camel, frozen=True):
    """RGB color; each channel is from 0 to 255."""

    red: float = 0.0
    green: float = 0.0
    blue: float = 0.0


class DominantColor(_Camel, frozen=True):
    """Dominant color of a picture: `score` is its prominence, `pixel_fraction` its share of the pixels, both 0 to 1."""

    color: Channels = Channels()
    score: float = 0.0
    pixel_fraction: float = 0.0


class DominantColors(_Camel, frozen=True):
    """Dominant colors of one picture (`DominantColorsAnnotation` of the Cloud Vision API)."""

    colors: tuple[DominantColor, ...] = ()


class ImageProperties(_Camel, frozen=True):
    """Object that holds only the dominant colors of a picture (`ImageProperties` of the Cloud Vision API)."""

    dominant_colors: DominantColors = DominantColors()


class RpcStatus(_Camel, frozen=True):
    """Error of one picture in Google Vision's answer (`google.rpc.Status`); `code` is a gRPC status code."""

    code: int = 0
    message: str = ""
    details: tuple[dict[str, object], ...] = ()


class AnnotateResult(_Camel, frozen=True):
    """Everything that Google found in one picture (labels, logos, texts, faces, …), or the error of the picture.

    It is `AnnotateImageResponse` of the Cloud Vision API.
    """

    label_annotations: tuple[Annotation, ...] = ()
    logo_annotations: tuple[Annotation, ...] = ()
    text_annotations: tuple[Annotation, ...] = ()
    face_annotations: tuple[FaceAnnotation, ...] = ()
    safe_search_annotation: SafeSearch | None = None
    image_properties_annotation: ImageProperties = ImageProperties()
    error: RpcStatus | None = None


class BatchAnnotateResponse(_Camel, frozen=True):
    """Answer of the Cloud Vision API to `images:annotate`: a result for each picture of the request."""

    responses: tuple[AnnotateResult, ...]


class GoogleVision(VisionAdapter):
    """Back end `googlevision`: features brands, colors, faces, nsfw, tags, texts.

    `nsfw` has likelihood words for the labels adult, violence, racy, medical and spoof. `texts` starts with the whole
    text, followed by each word; these entries have no scores. `faces` have emotions as likelihood words, and no age,
    gender or landmarks.

    The terms of the Google Cloud Platform and of its Cloud Vision API apply; pictures are sent to Google.

    Args:
        settings: `api_key` is an API key. If there is none, the option `credentials_file` names the key file of a
            service account, which needs the extra `googlevision`. `model` is Google's model, by default
            `builtin/stable`.

    Raises:
        SettingsError: there is neither key nor key file, or the key file is invalid.
    """

    supported_features = frozenset(_TYPES)

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self._model = settings.model or DEFAULT_MODEL
        self._account: ServiceAccount | None = None
        headers = {}
        credentials_file = settings.options.get(CREDENTIALS_OPTION)
        if settings.api_key is not None:
            headers["X-Goog-Api-Key"] = settings.api_key.get_secret_value()
        elif credentials_file:
            self._account = ServiceAccount(self.name, str(local_path(credentials_file)), _SCOPE, settings.timeout_s)
            self.connections.callback(self._account.close)
        else:
            raise SettingsError(
                f"The back end {self.name} has no key: set GOOGLE_API_KEY, or GOOGLE_APPLICATION_CREDENTIALS to the"
                " key file of a service account."
            )
        self._rest = RestClient(settings, headers)
        self.connections.callback(self._rest.close)

    def _entries(self, picture: EncodedPicture, features: frozenset[str]) -> Entries:
        image = {"content": base64.b64encode(picture.jpeg).decode("ascii")}
        wanted = [self._feature(feature) for feature in sorted(features)]
        content = msgspec.json.encode({"requests": [{"image": image, "features": wanted}]})
        return self.call(self._model, lambda timeout_s: self._annotate(content, features, timeout_s), picture)

    def _feature(self, feature: str) -> dict[str, Any]:
        model = {} if self._model == DEFAULT_MODEL else {"model": self._model}
        return {"type": _TYPES[feature], "maxResults": MAX_RESULTS, **model}

    def _annotate(self, content: bytes, features: frozenset[str], timeout_s: float) -> Entries:
        headers = {"Content-Type": "application/json", **(self._account.headers() if self._account else {})}
        body = self._rest.post("/v1/images:annotate", timeout_s, content=content, headers=headers)
        results = decode_json(body, BatchAnnotateResponse).responses
        if len(results) != 1:
            raise CallFailed(FailureKind.MALFORMED, f"it has {len(results)} results for one picture")
        return read_result(results[0], features, self.name)


def read_result(result: AnnotateResult, features: frozenset[str], source: str) -> Entries:
    """Convert Google Vision's result for one picture to entries (tags, faces, …) of the requested `features`.

    A result may hold an error beside what was found; then a feature without entries failed. `source` is the name of the
    back end, which becomes the `source` of each entry.

    Raises:
        CallFailed: all requested features failed.
    """
    found: dict[str, Any] = {}
    error = None if result.error is None or not result.error.code else _result_failure(result.error)
    for feature in sorted(features):
        try:
            entries = _READERS[feature](result, source)
            found[feature] = entries if entries or error is None else error
        except CallFailed as missing:
            found[feature] = error or missing
    if error is not None and all(each is error for each in found.values()):
        raise error
    return join_features(found)


def _result_failure(error: RpcStatus) -> CallFailed:
    """Convert Google's error for one picture to a `CallFailed`, which the caller raises.

    Google sends this error inside an answer with HTTP status 200.
    """
    message = error.message or f"error {error.code}"
    if error.code == _RESOURCE_EXHAUSTED:
        wait_s = retry_after_s({}, {"error": {"details": list(error.details)}}, time.time())
        return CallFailed(FailureKind.THROTTLED, message, is_transient=True, retry_after_s=wait_s)
    if error.code == _DEADLINE_EXCEEDED:
        return CallFailed(FailureKind.TIMEOUT, message, is_transient=True)
    if error.code in _TRANSIENT_CODES:
        return CallFailed(FailureKind.BROKEN, message, is_transient=True)
    return CallFailed(FailureKind.REFUSED, message)


def _tags(result: AnnotateResult, source: str) -> Any:
    return to_tags(((label.description, to_score(label.score)) for label in result.label_annotations), source)


def _nsfw(result: AnnotateResult, source: str) -> Any:
    found = result.safe_search_annotation
    if found is None:
        raise CallFailed(FailureKind.MALFORMED, "it has no safeSearchAnnotation")
    labels = ("adult", "violence", "racy", "medical", "spoof")
    return [Nsfw(label=label, likelihood=getattr(found, label), source=source) for label in labels]


def _colors(result: AnnotateResult, source: str) -> Any:
    colors: dict[str, list[Color]] = {}
    for found in result.image_properties_annotation.dominant_colors.colors:
        channels = (found.color.red, found.color.green, found.color.blue)
        red, green, blue = (round(min(max(channel, 0.0), 255.0)) for channel in channels)
        entry = Color(
            hex=f"#{red:02x}{green:02x}{blue:02x}",
            score=to_score(found.score),
            pixel_fraction=to_score(found.pixel_fraction),
            red=red,
            green=green,
            blue=blue,
            source=source,
        )
        colors.setdefault(entry.hex, [entry])
    return colors


def _polygon(outline: BoundingPolygon) -> dict[str, Any]:
    return {"vertices": [{"x": vertex.x, "y": vertex.y} for vertex in outline.vertices]}


def _faces(result: AnnotateResult, source: str) -> Any:
    return [
        Face.model_validate(
            msgspec.structs.asdict(face) | {"bounding_poly": _polygon(face.bounding_poly), "source": source}
        )
        for face in result.face_annotations
    ]


def _texts(result: AnnotateResult, source: str) -> Any:
    texts = []
    for found in result.text_annotations:
        entry = {"text": found.description, "bounding_poly": _polygon(found.bounding_poly), "source": source}
        if found.locale is not None:
            entry["locale"] = found.locale
        texts.append(Text.model_validate(entry))
    return texts


def _brands(result: AnnotateResult, source: str) -> Any:
    return [
        Brand(
            name=found.description,
            score=to_score(found.score),
            bounding_poly=_polygon(found.bounding_poly),
            source=source,
        )
        for found in result.logo_annotations
    ]


_READERS: Final[dict[str, Callable[[AnnotateResult, str], Any]]] = {
    "brands": _brands,
    "colors": _colors,
    "faces": _faces,
    "nsfw": _nsfw,
    "tags": _tags,
    "texts": _texts,
}
