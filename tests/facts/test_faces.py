"""Faces in the formats of several providers."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.faces import FACE_COLUMNS, read_faces
from lightmeter.facts.fast_decode import decode_entries

BY_SHARES = {
    "BoundingBox": {"Left": 0.25, "Top": 0.5, "Width": 0.125, "Height": 0.25},
    "AgeRange": {"Low": 20, "High": 30},
    "Gender": {"Value": "Female", "Confidence": 99},
    "Emotions": [{"Type": "HAPPY", "Confidence": 75}, {"Type": "SAD", "Confidence": 0.5}],
}
BY_CORNERS = {
    "bounding_poly": {"vertices": [{"x": 10}, {"x": 30}, {"x": 30, "y": 50}, {"y": 50}]},
    "joy_likelihood": "VERY_LIKELY",
    "anger_likelihood": "UNKNOWN",
}
CASES = {
    "shares and per cent": (BY_SHARES, (0.25, 0.5, 0.125, 0.25, 20, 30, "Female", 0.99, {"HAPPY": 0.75, "SAD": 0.005})),
    "corners and likelihoods": (BY_CORNERS, (0, 0, 30, 50, None, None, None, None, {"joy": 1.0, "anger": None})),
    "plain": (
        {"left": 1, "top": 2, "width": 3, "height": 4, "age": 31, "gender": "m", "emotions": {"joy": 0.5}},
        (1, 2, 3, 4, 31, 31, "m", None, {"joy": 0.5}),
    ),
    "words": ({"age": "20-30", "emotion": "calm"}, (None, None, None, None, 20, 30, None, None, {"calm": None})),
    "nothing": ({}, (None,) * 9),
    "nonsense": (
        {"bounding_box": [1], "age": "old", "gender": 5, "emotions": [None, 5, {"type": 1}], "bounding_poly": "x"},
        (None,) * 9,
    ),
}


def read(faces):
    """Each face's values."""
    columns = read_faces(faces)
    assert tuple(columns) == FACE_COLUMNS
    face_rows = [dict(zip(FACE_COLUMNS, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [face | {"emotions": face["emotions"] and dict(face["emotions"])} for face in face_rows]


@pytest.mark.parametrize("case", CASES)
def test_faces_of_each_kind_are_read(case):
    """Boxes, ages, genders and emotions are found whatever the provider calls them; nonsense is null."""
    fields, expected = CASES[case]
    assert read([fields]) == [dict(zip(FACE_COLUMNS, expected, strict=True))]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
WORDS = ["bounding_box", "BoundingBox", "bounding_poly", "age", "AgeRange", "gender", "emotions", "joy_likelihood", "x"]


@given(fields=st.dictionaries(st.sampled_from(WORDS), JSON))
def test_no_face_raises(fields):
    """A face of any shape gives all columns."""
    assert len(read([fields])) == 1


NUMBERS = st.integers(-9, 9) | st.floats(allow_nan=False) | st.sampled_from([2**53 + 1, True, None, "1"])
CORNERS = st.lists(st.fixed_dictionaries({"x": NUMBERS, "y": NUMBERS}) | st.just({"x": 1}), max_size=3)
ALIKE = st.fixed_dictionaries(
    {"bounding_poly": st.fixed_dictionaries({"vertices": CORNERS}) | st.just({})},
    optional={
        f"{word}_likelihood": st.sampled_from(["LIKELY", " likely ", "x", None, 50]) for word in ("joy", "anger")
    },
)


@given(fields=ALIKE)
def test_the_short_way_of_the_usual_face_changes_no_value(fields):
    """The fast path for usual faces gives the same values as the lenient one."""
    usual = decode_entries("faces", [orjson.dumps(fields)])
    assert usual is None or read(usual) == read([fields])
