"""The pure parts of ONNX back ends: boxes, fitting, rescaling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lightmeter.media.image_transforms import FitWithin, crop_center, letterbox, stretch, transform_array
from lightmeter.service.backends.onnx_models.backends import apply_activation, rescale_score
from lightmeter.service.backends.onnx_models.boxes import (
    boxes_to_fractions,
    corners,
    intersection_over_union,
    non_maximum_suppression,
)
from lightmeter.service.backends.onnx_models.model_input import ModelInput
from lightmeter.service.backends.onnx_models.settings import OnnxModelSettings

SIDES = st.integers(1, 120)
PIXELS = st.floats(0, 100, width=32)
SHARES = st.floats(0.05, 0.95)


@st.composite
def scored_boxes(draw):
    """Boxes, some of them without an area or inside out, and a score for each."""
    count = draw(st.integers(0, 12))
    boxes = draw(arrays(np.float32, (count, 4), elements=PIXELS))
    scores = draw(arrays(np.float32, count, elements=st.floats(0, 1, width=32)))
    return boxes, scores


@given(scored_boxes(), SHARES)
def test_what_is_kept_overlaps_little_and_covers_the_rest(found, most):
    """Remaining boxes do not overlap too much, and each dropped box overlaps a stronger one."""
    boxes, scores = found
    indices = non_maximum_suppression(boxes, scores, most).tolist()
    assert len(set(indices)) == len(indices)
    assert [float(score) for score in scores[indices]] == sorted(map(float, scores[indices]), reverse=True)
    for place, index in enumerate(indices):
        assert (intersection_over_union(boxes[index], boxes[indices[place + 1 :]]) <= most).all()
    for index in set(range(len(boxes))) - set(indices):
        over = [each for each in indices if scores[each] >= scores[index]]
        assert (intersection_over_union(boxes[index], boxes[over]) > most).any()


@given(scored_boxes(), SHARES)
def test_suppressing_twice_changes_nothing(found, most):
    """Suppression is idempotent and keeps the best box."""
    boxes, scores = found
    indices = non_maximum_suppression(boxes, scores, most)
    assert non_maximum_suppression(boxes[indices], scores[indices], most).tolist() == list(range(len(indices)))
    assert len(indices) == 0 or scores[indices[0]] == scores.max()


@given(scored_boxes())
def test_overlap_is_a_share_and_the_same_both_ways(found):
    """Overlap is between 0 and 1, symmetric, and 1 of a box with itself if it has an area."""
    boxes, _ = found
    for box in boxes:
        overlap = intersection_over_union(box, boxes)
        assert ((overlap >= 0) & (overlap <= 1)).all()
        assert np.array_equal(overlap, [intersection_over_union(other, box[None])[0] for other in boxes])
        if (box[2:] - box[:2] > 1).all():
            assert intersection_over_union(box, box[None])[0] == 1


@given(SIDES, SIDES, SIDES, SIDES)
def test_a_letterbox_keeps_proportions_and_fills_one_side(width, height, wide, high):
    """A letterboxed picture is centered, fills one dimension, and has a grey border."""
    fitted = letterbox(np.full((height, width, 3), 200, np.uint8), wide, high, 114)
    assert fitted.canvas.shape == (high, wide, 3)
    assert fitted.width == wide or fitted.height == high
    factor = min(wide / width, high / height)
    assert (fitted.width, fitted.height) == (
        pytest.approx(width * factor, abs=0.6) if width * factor >= 1 else 1,
        pytest.approx(height * factor, abs=0.6) if height * factor >= 1 else 1,
    )
    assert abs(2 * fitted.left + fitted.width - wide) <= 1
    assert abs(2 * fitted.top + fitted.height - high) <= 1
    inside = fitted.canvas[fitted.top : fitted.top + fitted.height, fitted.left : fitted.left + fitted.width]
    assert (inside == 200).all()
    assert (fitted.canvas == 114).all(axis=2).sum() == wide * high - fitted.width * fitted.height


@given(SIDES, SIDES, SIDES, SIDES, arrays(np.float64, 4, elements=st.floats(0, 1)))
def test_a_box_finds_its_way_back(width, height, wide, high, shares):
    """Boxes stay the same when converted from fractions of the picture to pixels of the input and back."""
    fitted = letterbox(np.zeros((height, width, 3), np.uint8), wide, high, 114)
    left, top, right, bottom = shares
    pixels = np.array(
        [
            [
                fitted.left + left * fitted.width,
                fitted.top + top * fitted.height,
                fitted.left + right * fitted.width,
                fitted.top + bottom * fitted.height,
            ]
        ],
        np.float32,
    )
    assert boxes_to_fractions(pixels, fitted)[0] == pytest.approx(shares, abs=1e-3)


@given(scored_boxes())
def test_boxes_stay_on_the_picture(found):
    """Fractions are from 0 to 1, wherever a model puts its boxes."""
    fitted = letterbox(np.zeros((10, 20, 3), np.uint8), 50, 50, 0)
    shares = boxes_to_fractions(found[0] * 3 - 100, fitted)
    assert ((shares >= 0) & (shares <= 1)).all()


def test_centres_become_corners():
    """Boxes given by center and size become left, top, right, bottom."""
    assert corners(np.array([[10, 20, 4, 6]], np.float32)).tolist() == [[8, 17, 12, 23]]


@given(SIDES, SIDES, SIDES, SIDES, st.sampled_from(["crop", "stretch", "letterbox"]), st.sampled_from(["nchw", "nhwc"]))
def test_every_picture_fits_every_input(width, height, wide, high, resize, layout):
    """The tensor has the input's shape, and a picture of one colour stays it, scaled and normalised."""
    settings_of_model = OnnxModelSettings(kind="onnx-detector", model="m", fill=50, mean=(0, 0, 0.5), std=(1, 2, 1))
    wanted = ModelInput("x", wide, high, np.float32, layout, resize, settings_of_model)
    picture = np.full((height, width, 3), 50, np.uint8)
    tensor = wanted.tensor(wanted.fit(picture).canvas)
    assert tensor.shape == ((1, 3, high, wide) if layout == "nchw" else (1, high, wide, 3))
    assert tensor.dtype == np.float32
    colours = tensor[0].reshape(3, -1) if layout == "nchw" else tensor[0].reshape(-1, 3).T
    value = 50 / 255
    for channel, expected in zip(colours, (value, value / 2, value - 0.5), strict=True):
        assert channel == pytest.approx(expected, abs=1e-6)


@given(SIDES, SIDES, SIDES, SIDES)
def test_a_view_is_fitted_as_the_picture_is(width, height, wide, high):
    """A back end needs only the transform that it declares."""
    settings_of_model = OnnxModelSettings(kind="onnx-detector", model="m")
    wanted = ModelInput("x", wide, high, np.float32, "nchw", "letterbox", settings_of_model)
    picture = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    whole, resized = wanted.fit(picture), wanted.fit(transform_array(picture, FitWithin(max(wide, high))))
    assert np.array_equal(whole.canvas, resized.canvas)


def test_the_middle_is_cut_out():
    """A crop holds only the center of the picture, in the proportions of the input."""
    picture = np.zeros((100, 300, 3), np.uint8)
    picture[15:85, 80:220] = 200
    assert (crop_center(picture, 40, 20, 0.5) == 200).all()
    assert stretch(picture, 30, 10).shape == (10, 30, 3)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 0.99))
def test_rescaling_keeps_the_order(one, other, threshold):
    """Scores stay within 0 and 1 and in their order; the decision threshold becomes 0.9."""
    first, second = sorted((one, other))
    assert 0 <= rescale_score(first, threshold) <= rescale_score(second, threshold) + 1e-12 <= 1 + 1e-9
    assert rescale_score(threshold, threshold) == pytest.approx(0.9)
    assert (rescale_score(0.0, threshold), rescale_score(1.0, threshold)) == (0, pytest.approx(1))


@given(
    arrays(np.float32, st.integers(1, 9), elements=st.floats(-1e4, 1e4, width=32)),
    st.sampled_from(["softmax", "sigmoid", "none"]),
)
def test_activations_give_scores(outputs, activation):
    """Outputs of any size become scores from 0 to 1 in the same order; those of softmax add up to 1."""
    scores = apply_activation(outputs, activation)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (np.diff(scores[np.argsort(outputs)]) >= 0).all()
    if activation == "softmax":
        assert scores.sum() == pytest.approx(1, abs=1e-5)
