"""Differences between frames of a video."""

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from lightmeter.media.image import encode_jpeg, load_rgb
from lightmeter.media.video.frame_differences import (
    CUT_DIFFERENCE,
    frame_features,
    is_near_identical,
    largest_change,
    perceptual_distance,
    scene_difference,
    scene_start_indices,
)
from lightmeter.media.video.sample_video import sample_video
from lightmeter.testing import blank_picture, tiny_picture

MEDIA = Path(__file__).parents[2] / "data" / "media"


@pytest.fixture(scope="module")
def photographs():
    """Return the photographs of the sample data."""
    return [load_rgb(path.read_bytes(), max_side=256) for path in sorted(MEDIA.glob("*.jpg"))]


def test_a_frame_does_not_differ_from_itself(photographs):
    """All differences of a frame and itself are 0, and they do not depend on the order of two frames."""
    first, second = frame_features(photographs[0]), frame_features(photographs[1])
    assert [measure(first, first) for measure in (perceptual_distance, largest_change, scene_difference)] == [0, 0, 0]
    for measure in (perceptual_distance, largest_change, scene_difference):
        assert measure(first, second) == measure(second, first) > 0


def test_different_photographs_are_different_scenes(photographs):
    """Each pair of photographs is above PySceneDetect's threshold, and no pair is near-identical."""
    features = [frame_features(photograph) for photograph in photographs]
    pairs = list(combinations(features, 2))
    assert min(scene_difference(first, second) for first, second in pairs) >= CUT_DIFFERENCE
    assert not any(is_near_identical(first, second) for first, second in pairs)


def test_noise_of_an_encoder_leaves_frames_near_identical():
    """A picture of 640 pixels and its copy with the artifacts of strong compression are near-identical."""
    for path in sorted(MEDIA.glob("*.jpg")):
        large = load_rgb(path.read_bytes(), max_side=640)
        copies = [load_rgb(encode_jpeg(large, quality=quality), max_side=256) for quality in (95, 35)]
        assert is_near_identical(*(frame_features(copy) for copy in copies))


def test_a_small_object_that_moves_is_a_change(photographs):
    """A square with a thirtieth of the frame's width makes two frames differ, although the scene is the same."""
    moved = photographs[0].copy()
    moved[100:108, 100:108] = [255, 0, 255]
    first, second = frame_features(photographs[0]), frame_features(moved)
    assert not is_near_identical(first, second)
    assert scene_difference(first, second) < 1


def test_hue_is_a_circle_and_gray_has_none():
    """Two reds at both ends of the circle of hues differ little; so do two nearly gray frames of opposite hue."""
    reds = [np.full((32, 32, 3), color, np.uint8) for color in ((200, 0, 6), (200, 6, 0))]
    grays = [np.full((32, 32, 3), color, np.uint8) for color in ((120, 122, 122), (122, 120, 120))]
    for first, second in (reds, grays):
        assert scene_difference(frame_features(first), frame_features(second)) < 4


def test_scenes_begin_where_the_content_changes():
    """The indices are those of the first frames of the second and later scenes, for frames of any size."""
    wide = tiny_picture(1, width=300, height=200)
    frames = [blank_picture(), tiny_picture(1), wide, tiny_picture(2), tiny_picture(2)]
    assert scene_start_indices([frame_features(frame) for frame in frames]) == [1, 3]
    assert scene_start_indices([]) == scene_start_indices([frame_features(frames[0])]) == []


@pytest.mark.parametrize(("name", "cuts"), [("bunny.mp4", []), ("city.mp4", [5]), ("samoyed.mp4", [])])
async def test_cuts_of_real_videos(name, cuts):
    """The one cut of three real videos is found, and motion is none."""
    _, frames = await sample_video(MEDIA / name, interval_s=1, max_frames=0, max_side=256)
    features = [frame_features(frame.rgb) for frame in frames]
    assert scene_start_indices(features) == cuts
    assert not any(is_near_identical(first, second) for first, second in pairwise(features))
