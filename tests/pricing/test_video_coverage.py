"""How much of the planned videos the frames cover, and an interval that covers more at no cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.pricing import video_coverage as coverage
from lightmeter.pricing.video_coverage import coverage_advice

lengths = st.lists(st.tuples(st.none() | st.integers(1, 100_000), st.integers(1, 50)), min_size=1, max_size=8)
intervals = st.integers(1, 900)
limits = st.integers(0, 20)


def video_coverage(groups, interval_s, max_frames):
    """Return the coverage of videos whose lengths are whole seconds: pairs of a length and the number of videos."""
    exact = [(seconds, videos, float((seconds or 0) * videos)) for seconds, videos in groups]
    return coverage.video_coverage(exact, interval_s, max_frames)


def test_exact_lengths_are_added():
    """The share that is covered is of the exact lengths, not of lengths rounded up to whole seconds."""
    found = coverage.video_coverage([(3, 2, 5.0), (2, 4, 4.4)], 1, 2)
    assert (found.seconds, found.covered_s, found.frames) == (9.4, 8.4, 12)
    assert "11 % of 9.4 s is not covered" in found.sentence
    assert found.better.covered_s == found.seconds


def test_three_frames_of_ten_minutes():
    """The default covers three seconds of each video; an interval for the median covers more at the same price."""
    found = video_coverage([(300, 10), (600, 2)], 1, 3)
    assert (found.videos, found.seconds, found.covered_s, found.frames) == (12, 4200, 36, 36)
    assert found.sentence == (
        "12 videos: the frames cover the first 3 s of each; 99 % of 4,200 s is not covered "
        "(--capture-interval, --max-frames)"
    )
    assert coverage_advice(found) == (
        (
            "Capture interval 100 spreads 3 frames over 300 s, the median of the videos that are cut off, "
            "for the same 36 frames in all: 86 % is covered."
        ),
    )


def test_one_video_is_named_as_one():
    """The sentences fit the numbers, and nearly all is not shown as all."""
    found = video_coverage([(3600, 1)], 1, 1)
    assert found.sentence.startswith("1 video: the frames cover the first 1 s of each; more than 99 % of 3,600 s")
    assert found.advice == (
        "Capture interval 3600 spreads 1 frame over 3,600 s, the video, for the same 1 frame in all: 100 % is covered."
    )


def test_short_videos_are_not_mentioned():
    """Videos covered in full need no sentence and no advice; without videos there is no coverage."""
    for found in (video_coverage([(3, 5), (1, 2)], 1, 3), video_coverage([(9000, 1), (None, 1)], 1, 0)):
        assert (found.sentence, coverage_advice(found)) == (None, ())
    assert video_coverage([], 1, 3) is None
    assert coverage_advice(None) == ()


def test_unknown_lengths_are_reported():
    """For videos of unknown length only the most that can be covered is known."""
    found = video_coverage([(None, 4)], 2, 5)
    assert found.sentence == (
        "4 videos: the frames cover the first 10 s of each; 4 of unknown length (--capture-interval, --max-frames)"
    )
    assert (found.advice, found.seconds) == (None, 0)


def test_short_videos_do_not_hide_long_ones():
    """The interval is made for the videos that are cut off, however many others there are."""
    found = video_coverage([(2, 1000), (600, 1)], 1, 3)
    assert (found.better.capture_interval, found.better.video_s) == (200, 600)


@given(lengths, intervals, limits)
def test_advice_never_costs_more_nor_sees_less(videos, interval, most):
    """No more frames, at least as many seconds, a longer interval; and seconds covered are seconds there are."""
    found = video_coverage(videos, interval, most)
    assert 0 <= found.covered_s <= found.seconds
    assert found.videos == sum(count for _, count in videos)
    assert (found.better is None) == (found.covered_s == found.seconds)
    if found.better is not None:
        assert found.better.frames <= found.frames
        assert found.covered_s <= found.better.covered_s <= found.seconds
        assert found.better.capture_interval > interval
        assert found.sentence is not None


@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_percentages_do_not_round_to_nothing_or_all(share):
    """Less than all is never written as 100 %, more than nothing never as 0 %."""
    found = video_coverage([(10_000, 1)], 1, round(10_000 * share))
    for sentence in (found.sentence, found.advice):
        assert " 0 %" not in sentence
    assert "100 % of" not in found.sentence
