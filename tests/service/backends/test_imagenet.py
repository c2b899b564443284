"""The back end `imagenet`: tags of real photos, embeddings, and the cached model."""

from __future__ import annotations

import numpy as np
import pytest

from lightmeter.service.backends.imagenet.tag_groups import GROUPS
from lightmeter.service.backends.imagenet.tagger import EMBEDDING_MODEL, MAX_TAGS, MIN_SCORE, ImageNet
from lightmeter.wire.constants import DEFAULT_TAG_SCORE

TAGS = frozenset({"tags"})
EMBEDDINGS = frozenset({"embeddings"})


@pytest.fixture(scope="module")
def backend():
    imagenet = ImageNet()
    imagenet.warm()
    return imagenet


@pytest.fixture(scope="module")
def tags_of_photo(backend):
    """The tags of a photo that pass the default filter."""

    def tags(picture, options):
        (entries,) = backend.analyze([picture], TAGS, options)
        return {tag for tag, (entry,) in entries.tags.items() if entry.score >= DEFAULT_TAG_SCORE}

    return tags


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chelsea.jpg", {"cat", "mammal", "animal"}),
        ("coffee.jpg", {"coffee", "drink", "food"}),
        ("castle.jpg", {"building", "architecture", "outdoor"}),
        ("astronaut.jpg", {"person"}),
        ("mountains.jpg", {"mountain", "landscape", "nature", "outdoor"}),
        ("camera.jpg", {"black and white", "person"}),
        ("koala.jpg", {"mammal", "animal"}),
        ("viaduct.jpg", {"bridge", "architecture"}),
    ],
)
def test_photos_are_tagged_right(tags_of_photo, options, photo, name, expected):
    """On photos of things that ImageNet knows, general words pass the default filter."""
    assert expected <= tags_of_photo(photo(name), options)


def test_scenes_are_not_seen_where_they_are_not(tags_of_photo, options, photo):
    """Indoor photos get no scene tags such as landscape or outdoor."""
    for name in ("coffee.jpg", "chelsea.jpg"):
        assert not tags_of_photo(photo(name), options) & {"landscape", "outdoor", "nature", "person", "black and white"}


def test_neighbours_change_no_tags(backend, options, photo):
    """The tags of a picture do not depend on the other pictures of the call."""
    pictures = [photo(name) for name in ("castle.jpg", "camera.jpg", "coffee.jpg")]
    together = backend.analyze(pictures, TAGS, options)
    assert together == [entries for picture in pictures for entries in backend.analyze([picture], TAGS, options)]


def test_people_get_no_garments(tags_of_photo, options, photo):
    """A photo of a person gets no tag for a single garment."""
    assert tags_of_photo(photo("astronaut.jpg"), options) <= {"person", "clothing"}


def test_tags_are_few_and_ordered(backend, options, photo):
    """There are at most `MAX_TAGS` tags, by falling score in hundredths, none below `MIN_SCORE`."""
    (entries,) = backend.analyze([photo("squirrel.jpg")], TAGS, options)
    scores = [round(entry.score, 2) for (entry,) in entries.tags.values()]
    assert 0 < len(scores) <= MAX_TAGS
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] >= MIN_SCORE
    assert all(entry.name == name for name, (entry,) in entries.tags.items())
    assert entries.embeddings is None


def test_general_tag_is_answered(backend, options, photo):
    """A general tag is answered beside the tag of its class."""
    (entries,) = backend.analyze([photo("macaw.jpg")], TAGS, options)
    assert {"bird", "parrot", "macaw"} <= set(entries.tags)
    assert {"bird", "parrot"} <= set(GROUPS)


def test_embeddings_come_only_when_named(backend, options, photo):
    """Embeddings alone come without tags: a unit vector with the model's name, similar for similar pictures."""
    first, again, other = (
        entries
        for name in ("coffee.jpg", "coffee.jpg", "macaw.jpg")
        for entries in backend.analyze([photo(name)], EMBEDDINGS, options)
    )
    assert (first.tags, len(first.embeddings), first.embeddings[0].model) == ({}, 1, EMBEDDING_MODEL)
    assert first == again
    vector, different = (np.array(entries.embeddings[0].vector) for entries in (first, other))
    assert vector.shape == (1280,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-3)
    assert vector @ different < 0.9
    assert all(value == round(value, 5) for value in first.embeddings[0].vector)


def test_asking_for_both_changes_neither(backend, options, photo):
    """Requesting tags and embeddings together changes neither."""
    picture = photo("castle.jpg")
    (both,) = backend.analyze([picture], TAGS | EMBEDDINGS, options)
    (tags,), (embeddings,) = (backend.analyze([picture], features, options) for features in (TAGS, EMBEDDINGS))
    assert (both.tags, both.embeddings) == (tags.tags, embeddings.embeddings)


def test_model_is_converted_once_and_again_when_damaged(tmp_path, options, photo):
    """The converted model is cached, and a damaged cache file is replaced."""
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
