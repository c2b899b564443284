"""One scale for both forms of moderation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.extract import extract
from lightmeter.facts.lenient_decode import read_entries


def severity(label, score, likelihood):
    """Return the severity that the table `nsfw` has for one entry."""
    entry = {"label": label, "score": score, "likelihood": likelihood}
    return extract("nsfw", read_entries("nsfw", [entry]))["severity"][0]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (("nsfw", 0.7, None), 0.7),
        (("sfw", 0.75, None), 0.25),
        ((" SFW ", 1, None), 0.0),
        (("adult", None, "VERY_UNLIKELY"), 0.0),
        (("adult", None, "possible"), 0.5),
        (("sfw", None, "VERY_LIKELY"), 0.0),
        (("sfw", None, "UNLIKELY"), 0.75),
        (("adult", None, "UNKNOWN"), None),
        (("adult", None, "SOMEHOW"), None),
        (("adult", 0.2, "VERY_LIKELY"), 0.2),
        (("adult", True, "LIKELY"), 0.75),
        (("adult", float("nan"), None), None),
        (("adult", 1.5, None), 1.0),
        (("adult", 10**400, "LIKELY"), 0.75),
        (("sfw", -1, None), 1.0),
        ((None, 0.5, None), 0.5),
        ((["sfw"], "0.5", {"x": 1}), 0.5),
        (("sfw", "75%", None), 0.25),
        ((["sfw"], "half", {"x": 1}), None),
    ],
)
def test_severity_is_the_danger_on_a_scale_of_one(entry, expected):
    """Scores and likelihoods meet on 0..1, a safe label counts down, and what says nothing is None."""
    assert severity(*entry) == expected


@given(label=st.none() | st.text(), score=st.none() | st.floats() | st.integers(), likelihood=st.none() | st.text())
def test_severity_is_never_outside_its_scale(label, score, likelihood):
    """Whatever is answered, the column holds 0..1 or null."""
    found = severity(label, score, likelihood)
    assert found is None or 0 <= found <= 1


WORDS = st.none() | st.sampled_from(["sfw", " SFW ", "nsfw", "LIKELY", "possible", "UNKNOWN", "x"])


@given(entries=st.lists(st.tuples(WORDS, st.none() | st.floats(allow_nan=False, allow_infinity=False), WORDS)))
def test_many_are_rated_as_each_alone(entries):
    """Rating many entries at once changes no value."""
    found = read_entries("nsfw", [dict(zip(("label", "score", "likelihood"), entry, strict=True)) for entry in entries])
    assert extract("nsfw", found)["severity"] == [severity(*entry) for entry in entries]
