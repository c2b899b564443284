"""Types of the answer of `images:annotate`, with only the fields that the adapter reads, named as in the API reference.

Source: https://cloud.google.com/vision/docs/reference/rest/v1/AnnotateImageResponse. The API omits zero
and empty values, so nearly all fields have defaults; unknown fields are ignored.
"""

from __future__ import annotations

import msgspec


class _Camel(msgspec.Struct, rename="camel", frozen=True):
    """Base of types with fields in camelCase."""


class Vertex(_Camel, frozen=True):
    """Corner of a polygon, in pixels of the picture."""

    x: float = 0.0
    y: float = 0.0


class BoundingPolygon(_Camel, frozen=True):
    """Polygon around an object (`BoundingPoly`)."""

    vertices: tuple[Vertex, ...] = ()


class Annotation(_Camel, frozen=True):
    """Label, logo or text (`EntityAnnotation`); `score` is 0 to 1."""

    description: str = ""
    locale: str | None = None
    score: float = 0.0
    bounding_poly: BoundingPolygon = BoundingPolygon()


class FaceAnnotation(_Camel, frozen=True):
    """Face; angles in degrees, confidences 0 to 1."""

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
    """Likelihood of each kind of unsafe content."""

    adult: str = "UNKNOWN"
    violence: str = "UNKNOWN"
    racy: str = "UNKNOWN"
    medical: str = "UNKNOWN"
    spoof: str = "UNKNOWN"


class Channels(_Camel, frozen=True):
    """RGB color; channels 0 to 255."""

    red: float = 0.0
    green: float = 0.0
    blue: float = 0.0


class DominantColor(_Camel, frozen=True):
    """Dominant color with its prominence and its fraction of the picture, both 0 to 1."""

    color: Channels = Channels()
    score: float = 0.0
    pixel_fraction: float = 0.0


class DominantColors(_Camel, frozen=True):
    """Dominant colors of the picture."""

    colors: tuple[DominantColor, ...] = ()


class ImageProperties(_Camel, frozen=True):
    """Properties of the picture."""

    dominant_colors: DominantColors = DominantColors()


class RpcStatus(_Camel, frozen=True):
    """Error of one result (`google.rpc.Status`); `code` is a gRPC status code."""

    code: int = 0
    message: str = ""
    details: tuple[dict[str, object], ...] = ()


class AnnotateResult(_Camel, frozen=True):
    """Result for one picture."""

    label_annotations: tuple[Annotation, ...] = ()
    logo_annotations: tuple[Annotation, ...] = ()
    text_annotations: tuple[Annotation, ...] = ()
    face_annotations: tuple[FaceAnnotation, ...] = ()
    safe_search_annotation: SafeSearch | None = None
    image_properties_annotation: ImageProperties = ImageProperties()
    error: RpcStatus | None = None


class BatchAnnotateResponse(_Camel, frozen=True):
    """Answer of the API: a result for each picture."""

    responses: tuple[AnnotateResult, ...]
