"""Google Cloud Vision on loopback: requests are as documented, and documented answers become entries."""

from __future__ import annotations

import base64
import json

import jsonschema_rs
import pytest

from lightmeter.errors import BackendError, SettingsError
from lightmeter.service.backends.base import Backend, traits_of

# As the reference of `images:annotate` describes its request.
REQUEST = {
    "type": "object",
    "required": ["requests"],
    "additionalProperties": False,
    "properties": {
        "requests": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": {
                "type": "object",
                "required": ["image", "features"],
                "additionalProperties": False,
                "properties": {
                    "image": {
                        "type": "object",
                        "required": ["content"],
                        "additionalProperties": False,
                        "properties": {"content": {"type": "string"}},
                    },
                    "features": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["type"],
                            "additionalProperties": False,
                            "properties": {
                                "type": {"type": "string", "pattern": "^[A-Z_]+(DETECTION|PROPERTIES)$"},
                                "maxResults": {"type": "integer", "minimum": 1},
                                "model": {"type": "string"},
                            },
                        },
                    },
                },
            },
        }
    },
}
BOX = {"vertices": [{"x": 10, "y": 5}, {"x": 60, "y": 5}, {"x": 60, "y": 45}, {"x": 10, "y": 45}]}
# A corner at the edge: the interface leaves out what is zero.
EDGE = {"vertices": [{}, {"x": 30}, {"x": 30, "y": 20}, {"y": 20}]}
RESULT = {
    "labelAnnotations": [
        {"mid": "/m/0bt9lr", "description": "Dog", "score": 0.97, "topicality": 0.9},
        {"mid": "/m/05s2s", "description": "Plant", "score": 0.71, "topicality": 0.5},
    ],
    "safeSearchAnnotation": {
        "adult": "VERY_UNLIKELY",
        "spoof": "UNLIKELY",
        "medical": "POSSIBLE",
        "violence": "LIKELY",
        "racy": "VERY_LIKELY",
    },
    "imagePropertiesAnnotation": {
        "dominantColors": {
            "colors": [
                {"color": {"red": 254.6, "blue": 3}, "score": 0.6, "pixelFraction": 0.25},
                {"color": {"blue": 255}, "score": 0.4, "pixelFraction": 0.5},
            ]
        }
    },
    "faceAnnotations": [
        {
            "boundingPoly": BOX,
            "fdBoundingPoly": BOX,
            "landmarks": [{"type": "LEFT_EYE", "position": {"x": 20.5, "y": 15.25, "z": -0.001}}],
            "rollAngle": -3.5,
            "panAngle": 12.25,
            "detectionConfidence": 0.98,
            "landmarkingConfidence": 0.61,
            "joyLikelihood": "VERY_LIKELY",
            "sorrowLikelihood": "VERY_UNLIKELY",
            "angerLikelihood": "UNLIKELY",
            "surpriseLikelihood": "POSSIBLE",
            "underExposedLikelihood": "VERY_UNLIKELY",
            "blurredLikelihood": "VERY_UNLIKELY",
            "headwearLikelihood": "LIKELY",
        }
    ],
    "textAnnotations": [
        {"locale": "en", "description": "OPEN\nDAILY", "boundingPoly": EDGE},
        {"description": "OPEN", "boundingPoly": EDGE},
        {"description": "DAILY", "boundingPoly": BOX},
    ],
    "logoAnnotations": [{"mid": "/m/045c7b", "description": "Acme", "score": 0.83, "boundingPoly": BOX}],
}
PARTS = {
    "tags": ("LABEL_DETECTION", "labelAnnotations"),
    "nsfw": ("SAFE_SEARCH_DETECTION", "safeSearchAnnotation"),
    "colors": ("IMAGE_PROPERTIES", "imagePropertiesAnnotation"),
    "faces": ("FACE_DETECTION", "faceAnnotations"),
    "texts": ("TEXT_DETECTION", "textAnnotations"),
    "brands": ("LOGO_DETECTION", "logoAnnotations"),
}


@pytest.fixture
def backend(adapter_of, http_provider):
    http_provider.otherwise = http_provider.reply(200, {"responses": [RESULT]})
    return adapter_of("googlevision", http_provider.url)


def test_it_is_a_back_end_with_the_features_of_the_price_table(backend):
    """The adapter satisfies the protocol, runs calls in parallel, and takes pictures one by one."""
    assert isinstance(backend, Backend)
    assert backend.features == set(PARTS)
    assert (traits_of(backend).calls_at_once, traits_of(backend).pictures_a_call) == (8, 1)


@pytest.mark.parametrize("feature", PARTS)
def test_only_the_requested_feature_is_called(feature, backend, analyze, http_provider, is_the_picture):
    """A request is the documented JSON, with the key in a header, the picture as base64, and one feature."""
    entries = analyze(backend, feature, "descriptions")
    (http_request,) = http_provider.requests
    assert http_request.path == "/v1/images:annotate"
    assert http_request.headers["x-goog-api-key"] == "key-0123456789abcdef"
    assert "authorization" not in http_request.headers
    body = json.loads(http_request.body)
    assert jsonschema_rs.is_valid(REQUEST, body)
    (request,) = body["requests"]
    assert [wanted["type"] for wanted in request["features"]] == [PARTS[feature][0]]
    assert is_the_picture(base64.b64decode(request["image"]["content"], validate=True))
    assert {name for name, value in entries.model_dump().items() if value} == {feature}


def test_all_features_are_one_call(backend, analyze, http_provider, counted):
    """However many features are requested, the picture is sent once, and one call is counted."""
    analyze(backend)
    (http_request,) = http_provider.requests
    wanted = [feature["type"] for feature in json.loads(http_request.body)["requests"][0]["features"]]
    assert sorted(wanted) == sorted(kind for kind, _ in PARTS.values())
    assert (counted.usages, counted.errors) == ([("googlevision", "builtin/stable")], [])


def test_nothing_is_sent_for_features_it_does_not_offer(backend, analyze, http_provider):
    """A request without any of its features makes no call."""
    assert not any(analyze(backend, "descriptions").model_dump().values())
    assert http_provider.requests == []


def test_the_toolkit_reads_every_feature(backend, analyze, tables):
    """Pixels, scores, likelihoods and polygons of entries are in the columns of the toolkit's tables."""
    rows = tables(analyze(backend))
    assert [(row["name"], row["score"], row["source"]) for row in rows["tags"]] == [
        ("Dog", 0.97, "googlevision"),
        ("Plant", 0.71, "googlevision"),
    ]
    assert {row["label"]: (row["likelihood"], row["severity"]) for row in rows["nsfw"]} == {
        "adult": ("VERY_UNLIKELY", 0.0),
        "violence": ("LIKELY", 0.75),
        "racy": ("VERY_LIKELY", 1.0),
        "medical": ("POSSIBLE", 0.5),
        "spoof": ("UNLIKELY", 0.25),
    }
    colors = [
        (*(row[name] for name in ("hex", "red", "green", "blue")), row["score"], row["pixel_fraction"])
        for row in rows["colors"]
    ]
    assert colors == [("#ff0003", 255, 0, 3, 0.6, 0.25), ("#0000ff", 0, 0, 255, 0.4, 0.5)]
    (face,) = rows["faces"]
    assert [face[side] for side in ("left", "top", "width", "height")] == [10, 5, 50, 40]
    assert dict(face["emotions"]) == {"joy": 1.0, "sorrow": 0.0, "anger": 0.25, "surprise": 0.5}
    assert json.loads(face["raw"])["detection_confidence"] == 0.98
    assert [(row["text"], row["is_full_text"]) for row in rows["texts"]] == [
        ("OPEN\nDAILY", True),
        ("OPEN", False),
        ("DAILY", False),
    ]
    assert rows["texts"][1]["polygon"] == [{"x": 0, "y": 0}, {"x": 30, "y": 0}, {"x": 30, "y": 20}, {"x": 0, "y": 20}]
    (brand,) = rows["brands"]
    assert (brand["name"], brand["score"], len(brand["polygon"])) == ("Acme", 0.83, 4)


def test_an_answer_with_nothing_found_is_empty_entries(backend, analyze, http_provider):
    """Requested features of which nothing was found are empty lists, not missing."""
    http_provider.script.append(http_provider.reply(200, {"responses": [{}]}))
    entries = analyze(backend, "faces", "texts", "brands", "tags", "colors")
    assert (entries.faces, entries.texts, entries.brands, entries.tags, entries.colors) == ([], [], [], {}, {})


def test_another_model_is_sent_along(adapter_of, http_provider, analyze):
    """Only a model other than the provider's default is named in the request."""
    http_provider.otherwise = http_provider.reply(200, {"responses": [RESULT]})
    analyze(adapter_of("googlevision", http_provider.url, model="builtin/latest"), "tags")
    analyze(adapter_of("googlevision", http_provider.url), "tags")
    named = [
        json.loads(http_request.body)["requests"][0]["features"][0].get("model")
        for http_request in http_provider.requests
    ]
    assert named == ["builtin/latest", None]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(3, "refused"), (7, "refused"), (4, "timeout"), (8, "throttled"), (13, "broken"), (14, "broken")],
)
def test_an_error_of_the_picture_fails_the_picture(code, kind, adapter_of, http_provider, analyze, counted):
    """A status in a result without any annotation fails the picture."""
    failed = {"error": {"code": code, "message": "Bad image data."}}
    http_provider.otherwise = http_provider.reply(200, {"responses": [failed]})
    backend = adapter_of("googlevision", http_provider.url, max_attempts=1)
    with pytest.raises(BackendError, match="Bad image data"):
        analyze(backend)
    assert (counted.errors, counted.usages) == ([("googlevision", kind)], [])


def test_annotations_beside_an_error_are_kept(adapter_of, http_provider, analyze, counted):
    """A status in the result fails the features without annotations; Google guarantees the others."""
    result = {name: RESULT[name] for name in ("labelAnnotations", "safeSearchAnnotation")}
    failed = {**result, "error": {"code": 14, "message": "Try again."}}
    http_provider.otherwise = http_provider.reply(200, {"responses": [failed]})
    entries = analyze(adapter_of("googlevision", http_provider.url), "tags", "nsfw", "faces")
    assert entries.tags
    assert entries.nsfw
    assert entries.failures == {"faces": "Try again."}
    assert (counted.errors, len(counted.usages), len(http_provider.requests)) == ([], 1, 1)


def test_a_feature_that_is_missing_fails_alone(adapter_of, http_provider, analyze):
    """A result without moderation keeps its tags."""
    http_provider.otherwise = http_provider.reply(200, {"responses": [{**RESULT, "safeSearchAnnotation": None}]})
    entries = analyze(adapter_of("googlevision", http_provider.url))
    assert entries.tags
    assert {*entries.failures} == {"nsfw"}


def test_a_wait_in_the_details_is_kept(adapter_of, http_provider, analyze):
    """`google.rpc.RetryInfo` asks for a wait; one beyond the deadline of the picture is not waited for."""
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "11.5s"},
    ]
    error = {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": details}
    http_provider.otherwise = http_provider.reply(429, {"error": error})
    with pytest.raises(BackendError, match=r"limits the rate.*Quota exceeded"):
        analyze(adapter_of("googlevision", http_provider.url), "tags")
    assert len(http_provider.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"responses": []},
        {"responses": [{}, {}]},
        {"responses": [{"labelAnnotations": [{"description": "Dog", "score": "high"}]}]},
        {"responses": [{"labelAnnotations": {"description": "Dog"}}]},
        {},
        [],
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_an_error(body, backend, analyze, http_provider, counted):
    """An answer of another structure is counted as malformed and not retried."""
    http_provider.script.append(http_provider.reply(200, body))
    with pytest.raises(BackendError, match="cannot be read"):
        analyze(backend, "tags")
    assert counted.errors == [("googlevision", "malformed")]
    assert len(http_provider.requests) == 1


def test_moderation_without_a_verdict_is_an_error(backend, analyze, http_provider):
    """A missing moderation result is an error, not a safe picture."""
    http_provider.script.append(http_provider.reply(200, {"responses": [{}]}))
    with pytest.raises(BackendError, match="safeSearchAnnotation"):
        analyze(backend, "nsfw")


def test_without_a_key_it_is_not_made(adapter_of):
    """The error names both environment variables."""
    with pytest.raises(SettingsError, match=r"GOOGLE_API_KEY.*GOOGLE_APPLICATION_CREDENTIALS"):
        adapter_of("googlevision", "http://127.0.0.1:9", api_key=None)
