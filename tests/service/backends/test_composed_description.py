"""The back end `template`: one sentence composed of other results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import BackendError
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.local.composed_description import MIN_TAG_SCORE, Template, color_word, compose_sentence
from lightmeter.wire.response import Color, Entries, Face, Tag, Text


def tagged(**scores):
    return Entries(tags={name: [Tag(name=name, score=score)] for name, score in scores.items()})


def test_it_names_tags_people_colours_and_text():
    """All results are in one sentence, people first."""
    found = [
        tagged(cat=0.97, sofa=0.8, comet=0.1),
        Entries(faces=[Face(), Face()]),
        Entries(texts=[Text(text="Open"), Text(text="daily")]),
        Entries(colors={"#1e46c8": [Color(hex="#1e46c8", pixel_fraction=0.6)]}),
    ]
    sentence = compose_sentence(found)
    assert sentence == "A picture of two people, tagged cat and sofa, mostly blue, with the text “Open daily”."


def test_a_whole_text_is_not_repeated_line_by_line():
    """If the first text is the whole text, its lines are not repeated."""
    whole = Text.model_validate({"text": "Open\ndaily", "is_full_text": True})
    sentence = compose_sentence([Entries(texts=[whole, Text(text="Open"), Text(text="daily")])])
    assert sentence == "A picture with the text “Open daily”."


def test_nothing_found_is_reported():
    """A picture without entries gets a sentence that says so."""
    assert compose_sentence([Entries()]) == "A picture in which nothing was recognised."


def test_no_answer_is_an_error():
    """If no other back end answered, an error is raised."""
    with pytest.raises(BackendError, match="nothing to describe"):
        Template().compose({}, AnalysisOptions())


@given(st.dictionaries(st.from_regex(r"[a-z]{3,8}", fullmatch=True), st.floats(0, 1), max_size=8))
def test_only_likely_tags_are_named(scores):
    """No tag below the least score is in the sentence, and it is one sentence."""
    sentence = compose_sentence([tagged(**scores)])
    words = set(sentence.replace(",", " ").replace(".", " ").split())
    template = {"A", "picture", "in", "which", "nothing", "was", "recognised", "and", "tagged"}
    assert words - template <= {name for name, score in scores.items() if score >= MIN_TAG_SCORE}
    assert sentence.count(".") == 1


@pytest.mark.parametrize(
    ("code", "word"), [("#000000", "black"), ("#ffffff", "white"), ("#ff0000", "red"), ("#87cefa", "light blue")]
)
def test_colours_have_everyday_words(code, word):
    """Colors get everyday names."""
    assert color_word(code) == word
