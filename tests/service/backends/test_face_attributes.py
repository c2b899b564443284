"""Face chips: crops with the eyes at fixed positions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightmeter.service.backends.local.face_attributes import FaceAttributes, face_chip


@given(st.floats(20, 180), st.floats(20, 180), st.floats(12, 150), st.floats(-math.pi, math.pi))
def test_eyes_lie_where_they_belong(x, y, apart, angle):
    """For any size and rotation of a face, its eyes are at the fixed positions of the chip."""
    eyes = np.array([[x, y], [x + apart * math.cos(angle), y + apart * math.sin(angle)]])
    rows, columns = np.mgrid[0:400, 0:400] - 100
    picture = np.zeros((400, 400, 3), np.uint8)
    for channel, eye in enumerate(eyes):
        picture[..., channel] = 255 * (np.hypot(columns + 0.5 - eye[0], rows + 0.5 - eye[1]) < apart / 5)
    chip = face_chip(Image.fromarray(picture), eyes + 100, 64).astype(float)
    # An eye that the picture's edge cuts has its centre elsewhere.
    if all(apart / 5 <= place <= 400 - apart / 5 for place in (eyes + 100).ravel()):
        for channel, place in enumerate([(0.3052 * 64, 0.3010 * 64), (0.6806 * 64, 0.3009 * 64)]):
            weight = chip[..., channel]
            at = np.array([(weight * (grid + 0.5)).sum() / weight.sum() for grid in np.mgrid[0:64, 0:64][::-1]])
            assert at == pytest.approx(place, abs=1.0)


def test_far_outside_is_black():
    """Landmarks outside the picture give a black chip."""
    picture = Image.new("RGB", (20, 20), "white")
    assert not face_chip(picture, np.array([[900.0, 900.0], [910.0, 900.0]]), 32).any()


def test_small_and_turned_faces_are_left_open():
    """A face whose eyes are too close gets no attributes."""
    picture = np.zeros((100, 100, 3), np.uint8)
    points = np.zeros((3, 5, 2), np.float32)
    points[:, 1, 0] = [7, 10, 30]
    attributes = FaceAttributes().estimate(picture, points, np.array([14.0, 60.0, 60.0], np.float32))
    assert [bool(face) for face in attributes] == [False, False, True]
    assert attributes[2]["age_range"]["high"] - attributes[2]["age_range"]["low"] <= 24


def test_no_faces_nothing_to_say():
    """Without faces the networks are not run."""
    none = np.zeros((0, 5, 2), np.float32)
    assert FaceAttributes().estimate(np.zeros((4, 4, 3), np.uint8), none, np.zeros(0, np.float32)) == []
