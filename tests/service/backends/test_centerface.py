"""The back end `centerface`: faces, their fields, and the tag `person`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightmeter.facts.faces import read_faces
from lightmeter.service.backends.local.centerface import (
    LANDMARK_NAMES,
    MIN_SCORE,
    CenterFace,
    decode_faces,
    person_score,
)

BOTH = frozenset({"faces", "tags"})
FACES = frozenset({"faces"})
TAGS = frozenset({"tags"})


@pytest.fixture(scope="module")
def backend():
    center_face = CenterFace()
    center_face.warm()
    return center_face


@pytest.fixture(scope="module")
def astronaut(photo):
    return photo("astronaut.jpg")


def entries_of(backend, picture, features=BOTH):
    (entries,) = backend.analyze([picture], features, None)
    return entries.model_dump()


def maps(cells, height=8, width=8):
    """The network's outputs with a face of 32 x 32 pixels in each of the cells, given as row, column and score."""
    score = np.zeros((1, 1, height, width), np.float32)
    for row, column, value in cells:
        score[0, 0, row, column] = value
    size = np.full((1, 2, height, width), np.log(8), np.float32)
    return score, size, np.zeros((1, 2, height, width), np.float32), np.full((1, 10, height, width), 0.5, np.float32)


def test_the_astronaut_has_one_face(backend, astronaut):
    """The astronaut's face is found at its position, with landmarks in order, and the tag is set."""
    answer = entries_of(backend, astronaut)
    (face,) = answer["faces"]
    box = face["bounding_box"]
    # Marked by hand: the middle of her face is at 222, 120 of the 512 x 512 pixels, fewer than the model's input has.
    assert box["left"] + box["width"] / 2 == pytest.approx(222, abs=20)
    assert box["top"] + box["height"] / 2 == pytest.approx(120, abs=20)
    points = {point["type"]: point for point in face["landmarks"]}
    assert tuple(points) == LANDMARK_NAMES
    assert points["left_eye"]["x"] < points["nose"]["x"] < points["right_eye"]["x"]
    assert points["right_eye"]["y"] < points["nose"]["y"] < points["left_mouth_corner"]["y"]
    assert face["score"] > MIN_SCORE
    assert list(answer["tags"]) == ["person"]
    assert answer["tags"]["person"][0]["source"] == "centerface"


def test_columns_of_the_table_are_filled(backend, astronaut):
    """Box, age, gender and score have the fields that the toolkit reads; emotions and race are absent."""
    (face,) = entries_of(backend, astronaut, FACES)["faces"]
    columns = {name: values[0] for name, values in read_faces([face]).items()}
    assert columns["width"] > 0
    assert columns["height"] > 0
    # Eileen Collins was 35 when the photo was taken.
    assert columns["age_low"] <= 35 <= columns["age_high"]
    assert columns["age_high"] - columns["age_low"] == 24
    assert columns["gender"] == "female"
    assert 0.5 <= columns["gender_score"] <= 1
    assert columns["emotions"] is None
    assert not {"race", "ethnicity", "emotions"} & set(face)


@pytest.mark.parametrize("name", ["chelsea.jpg", "coffee.jpg", "rocket.jpg"])
def test_no_face_no_person(backend, photo, name):
    """A photo without a face has an empty list and no tag."""
    answer = entries_of(backend, photo(name))
    assert answer["faces"] == []
    assert answer["tags"] == {}


def test_tag_alone_and_with_faces(backend, astronaut):
    """The tag is found with and without the feature faces; only requested features are filled in."""
    alone, faces = entries_of(backend, astronaut, TAGS), entries_of(backend, astronaut, FACES)
    assert list(alone["tags"]) == ["person"]
    assert alone["faces"] is None
    assert faces["tags"] == {}


def test_a_narrow_picture_is_not_stretched(backend, astronaut):
    """The same face in a wide and in a high frame has the same size and place: padding moves nothing."""
    height, width = astronaut.shape[:2]
    part = np.asarray(Image.fromarray(astronaut).resize((width * 300 // height, 300)))
    wide, high = np.zeros((300, 600, 3), np.uint8), np.zeros((600, part.shape[1], 3), np.uint8)
    wide[:, : part.shape[1]], high[:300] = part, part
    boxes = [entries_of(backend, frame, FACES)["faces"][0]["bounding_box"] for frame in (wide, high)]
    assert list(boxes[0].values()) == pytest.approx(list(boxes[1].values()), abs=1.5)


def test_a_face_partly_outside_is_clipped(backend, astronaut):
    """A face cut through by the edge has a box that ends there."""
    box = entries_of(backend, astronaut, FACES)["faces"][0]["bounding_box"]
    cut = np.ascontiguousarray(astronaut[:, int(box["left"] + 0.3 * box["width"]) :])
    (face,) = entries_of(backend, cut, FACES)["faces"]
    assert face["bounding_box"]["left"] == 0
    assert face["bounding_box"]["width"] < box["width"]


def test_a_crowd_is_found_face_by_face(backend, astronaut):
    """A sheet of 289 copies of one face, 36 pixels each, is answered with hundreds of faces, none twice."""
    box = entries_of(backend, astronaut, FACES)["faces"][0]["bounding_box"]
    x, y, reach = box["left"] + box["width"] / 2, box["top"] + box["height"] / 2, 0.6 * box["height"]
    head = Image.fromarray(astronaut).crop((int(x - reach), int(y - reach), int(x + reach), int(y + reach)))
    faces = entries_of(backend, np.tile(np.asarray(head.resize((36, 36))), (17, 17, 1)), FACES)["faces"]
    boxes = [face["bounding_box"] for face in faces]
    tiles = {
        ((box["left"] + box["width"] / 2) // 36, (box["top"] + box["height"] / 2) // 36)
        for box in boxes
    }  # fmt: skip
    assert 200 < len(tiles) == len(faces)


def test_nearby_cells_are_one_face():
    """Of overlapping boxes, the one with the highest score stays; a distant box is another face."""
    found = decode_faces(maps([(2, 2, 0.7), (2, 3, 0.9), (20, 20, 0.8)], 24, 24), 96, 96)
    assert found.scores.tolist() == pytest.approx([0.9, 0.8])
    assert found.boxes[0].tolist() == pytest.approx([0, 0, 30, 26])


cells = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.floats(0, 1)), max_size=64)


@given(cells, st.integers(1, 32), st.integers(1, 32))
def test_boxes_stay_inside(cells, width, height):
    """Any output maps give boxes inside the picture, not empty, by falling score, with little overlap."""
    found = decode_faces(maps(cells), width, height)
    low, high = found.boxes[:, :2], found.boxes[:, 2:]
    assert (low >= 0).all()
    assert (high <= [width, height]).all()
    assert (high - low >= 1).all()
    assert (np.diff(found.scores) <= 0).all()
    for one in range(len(low)):
        for other in range(one):
            shared = np.maximum(np.minimum(high[one], high[other]) - np.maximum(low[one], low[other]), 0).prod()
            areas = (high[[one, other]] - low[[one, other]]).prod(axis=1).sum()
            assert shared / (areas - shared) < 0.31


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_surer_face_is_a_surer_person(first, second):
    """The tag's score is a probability that never falls when the face's score rises."""
    low, high = sorted((first, second))
    assert 0 <= person_score(low) <= person_score(high) <= 1
