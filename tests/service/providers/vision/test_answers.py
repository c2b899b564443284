"""Any answer of a provider gives entries or a failure of the kind `malformed`."""

from __future__ import annotations

import math

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.service.backends.providers.failures import CallFailed
from lightmeter.service.backends.providers.http_client import decode_json
from lightmeter.service.backends.providers.vision.adapter import EncodedPicture, to_score
from lightmeter.service.backends.providers.vision.googlevision import BatchAnnotateResponse, read_result
from lightmeter.service.backends.providers.vision.rekognition_answer import (
    read_faces,
    read_labels,
    read_moderation_labels,
)
from lightmeter.wire.response import Entries

PICTURE = EncodedPicture(b"", 200, 100, 0.0)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)


def objects(*keys):
    """Return a strategy of objects with some of these keys and any values."""
    inner = SCALARS | st.floats(allow_nan=False, allow_infinity=False)
    anything = st.recursive(
        inner,
        lambda more: st.lists(more, max_size=2) | st.dictionaries(st.sampled_from(keys), more, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(st.sampled_from(keys), anything, max_size=4)


GOOGLE = objects(
    *("labelAnnotations", "logoAnnotations", "textAnnotations", "faceAnnotations", "safeSearchAnnotation", "error"),
    *("imagePropertiesAnnotation", "dominantColors", "colors", "color", "red", "score", "pixelFraction", "adult"),
    *("description", "boundingPoly", "vertices", "x", "y", "joyLikelihood", "rollAngle", "code", "message"),
)
AMAZON = objects(
    *("Labels", "ModerationLabels", "FaceDetails", "Name", "Confidence", "ParentName", "BoundingBox", "Left", "Top"),
    *("Width", "Height", "AgeRange", "Low", "High", "Gender", "Value", "Emotions", "Type", "Smile"),
)


@given(result=GOOGLE)
def test_any_result_of_google_is_read(result):
    """A result of any shape becomes entries that can be written as JSON, or is malformed."""
    body = orjson.dumps({"responses": [result]})
    features = frozenset({"brands", "colors", "faces", "nsfw", "tags", "texts"})
    try:
        entries = read_result(decode_json(body, BatchAnnotateResponse).responses[0], features, "googlevision")
    except CallFailed as failure:
        assert failure.kind == "malformed"  # noqa: PT017 (it need not fail)
    else:
        assert Entries.model_validate_json(entries.model_dump_json())


@given(answer=AMAZON)
def test_any_answer_of_amazon_is_read(answer):
    """An answer of any shape becomes entries, or is malformed."""
    for read in (read_faces, read_labels, read_moderation_labels):
        try:
            found = read(answer, PICTURE, "rekognition")
        except CallFailed as failure:
            assert failure.kind == "malformed"  # noqa: PT017 (it need not fail)
        else:
            assert len(found) <= 12


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e308])
@pytest.mark.parametrize("side", ["Left", "Top", "Width", "Height"])
def test_a_face_stands_at_finite_numbers(side, number):
    """Coordinates that are not finite are malformed."""
    box = {"Left": 0.0, "Top": 0.0, "Width": 0.5, "Height": 0.5, side: number}
    with pytest.raises(CallFailed, match="finite"):
        read_faces({"FaceDetails": [{"BoundingBox": box}]}, PICTURE, "rekognition")


@settings(deadline=None)
@given(value=st.floats(), scale=st.sampled_from([1.0, 100.0]))
def test_a_score_is_a_share(value, scale):
    """Scores are 0 to 1 and keep the order of the values; NaN becomes 0."""
    score = to_score(value, scale)
    assert 0 <= score <= 1
    if 0 <= value <= scale:
        assert score == pytest.approx(value / scale, abs=1e-6)
