"""Sampling: which frames are captured and charged."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lightmeter.media.video.sampling import (
    MAX_DURATION_S,
    duration_of,
    evenly_spaced,
    frame_count,
    frame_indices,
    frame_times,
    indices_at,
)

durations = st.floats(min_value=0, max_value=100_000)
intervals = st.integers(min_value=1, max_value=600)
limits = st.integers(min_value=0, max_value=100)


@pytest.mark.parametrize(
    ("duration_s", "interval_s", "max_frames", "expected"),
    [
        (0, 1, 3, 1),
        (0.9, 1, 3, 1),
        (1, 1, 3, 1),
        (5.28, 1, 3, 3),
        (5.28, 1, 0, 6),
        (5.28, 10, 0, 1),
        (-1, 1, 0, 1),
        (600, 1, 0, 600),
        (600, 7, 0, 86),
        (None, 1, 0, 1),
    ],
)
def test_frames_are_counted_as_the_contract_counts(duration_s, interval_s, max_frames, expected):
    """One frame at 0 s and at each interval strictly before the end, up to the limit: ten minutes are 600 frames."""
    assert frame_count(duration_s, interval_s, max_frames) == expected


@given(st.integers(1, 86_400), intervals, st.floats(-5e-4, 5e-4))
def test_rounding_errors_of_a_duration_add_no_frame(seconds, interval_s, error_s):
    """10.000000001 s are captured as 10 s are: a millisecond is within the precision of time stamps."""
    assert frame_count(seconds + error_s, interval_s, 0) == frame_count(seconds, interval_s, 0)


@given(st.fractions(1, 240), st.integers(1, 20_000), intervals)
def test_frames_over_rate_are_captured_exactly(fps, frames, interval_s):
    """A duration computed as frames / rate in floats has the captures of the exact fraction."""
    exact = frames / fps / interval_s
    assume(abs(exact - round(exact)) * interval_s > Fraction(1, 400) or exact.denominator == 1)
    assert frame_count(frames / float(fps), interval_s, 0) == max(1, ceil(exact))


@pytest.mark.parametrize(
    ("stamped_s", "frames", "fps", "expected"),
    [
        (12.5, 300, 24, 12.5),
        (3.8e17, 300, 24, 12.5),
        (float("nan"), 300, 24, 12.5),
        (float("inf"), 300, 24, 12.5),
        (-1, 300, 24, 12.5),
        (0, 300, 24, 12.5),
        (None, 300, 24, 12.5),
        (3.8e17, 300, 0, None),
        (3.8e17, 300, float("nan"), None),
        (3.8e17, 300, 1e-9, None),
        (3.8e17, 0, 24, None),
        (3.8e17, 0, 0, None),
        (MAX_DURATION_S, 0, 0, MAX_DURATION_S),
        (2.9999998, 0, 0, 3.0),
    ],
)
def test_absurd_durations_give_way_to_frames_over_rate(stamped_s, frames, fps, expected):
    """A duration is above 0 and at most a week: else it is frames / rate within the same bounds, else not known."""
    assert duration_of(stamped_s, frames, fps) == expected


@given(st.none() | st.floats(), st.integers(0, 2**63), st.floats())
def test_a_duration_is_always_within_bounds(stamped_s, frames, fps):
    """Whatever a header claims, a duration is one that frames can be counted for, or not known."""
    duration_s = duration_of(stamped_s, frames, fps)
    assert duration_s is None or 0 < duration_s <= MAX_DURATION_S
    assert 1 <= frame_count(duration_s, 1, 0) <= MAX_DURATION_S
    assert duration_of(duration_s) == duration_s


@given(durations, intervals, limits)
def test_times_are_as_many_as_counted_and_lie_in_the_video(duration_s, interval_s, max_frames):
    """Price and capture agree: as many times as counted, ascending from 0, none after the end."""
    times = frame_times(duration_s, interval_s, max_frames)
    assert len(times) == frame_count(duration_s, interval_s, max_frames) >= 1
    assert times[0] == 0
    assert times == sorted(set(times))
    assert times[-1] < duration_s or times == [0]
    assert not max_frames or len(times) <= max_frames


@given(durations, intervals, st.floats(min_value=0.1, max_value=240), st.integers(min_value=1, max_value=10_000))
def test_every_time_has_a_frame(duration_s, interval_s, fps, frames):
    """No index lies outside the video, whatever the container claims of its length."""
    indices = frame_indices(frame_times(duration_s, interval_s, 50), fps, frames)
    assert all(0 <= index < frames for index in indices)
    assert indices == sorted(indices)


@given(st.sampled_from([10, 24, 25, 30, 50, 60]), st.integers(min_value=1, max_value=2000))
def test_both_ways_to_find_a_frame_agree_at_a_constant_rate(fps, frames):
    """Looking up when frames start gives what multiplying by the rate gives."""
    times = frame_times(frames / fps, 1, 0)
    assert indices_at(times, [n / fps for n in range(frames)]) == frame_indices(times, fps, frames)


def test_a_varying_rate_is_followed():
    """The frame shown at a time is chosen by start times, counted from the first frame."""
    assert indices_at([0.0, 1.0, 2.0, 9.0], [7.0, 7.1, 7.2, 8.0, 9.5]) == [0, 3, 3, 4]


@pytest.mark.parametrize(("duration_s", "interval_s", "max_frames"), [(1, 0, 3), (1, 1, -1), (float("nan"), 1, 3)])
def test_nonsense_is_refused(duration_s, interval_s, max_frames):
    """An interval below 1, a negative limit or a length that is not finite raises ValueError."""
    with pytest.raises(ValueError, match="no sampling"):
        frame_count(duration_s, interval_s, max_frames)


def test_a_video_without_frames_has_none_to_pick():
    """Choosing from no frames raises ValueError."""
    with pytest.raises(ValueError, match="no frames"):
        frame_indices([0.0], 25, 0)
    with pytest.raises(ValueError, match="no frames"):
        indices_at([0.0], [])


def test_evenly_spaced_times_have_the_first_and_the_last():
    """Few times are all kept; of more, the given number is kept, with both ends and no repeats."""
    assert evenly_spaced([0.0, 1.0, 2.0], 3) == [0.0, 1.0, 2.0]
    for count in (25, 61, 1000, 86_401):
        chosen = evenly_spaced([float(n) for n in range(count)], 24)
        assert (len(set(chosen)), chosen[0], chosen[-1]) == (24, 0.0, count - 1.0)
        assert chosen == sorted(chosen)
