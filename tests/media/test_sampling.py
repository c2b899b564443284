"""Which frames are captured, and so paid for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.media.sampling import frame_count, frame_indices, frame_times, indices_at

durations = st.floats(min_value=0, max_value=100_000)
intervals = st.integers(min_value=1, max_value=600)
limits = st.integers(min_value=0, max_value=100)


@pytest.mark.parametrize(
    ("duration_s", "interval_s", "max_frames", "expected"),
    [(0, 1, 3, 1), (0.9, 1, 3, 1), (1, 1, 3, 2), (5.28, 1, 3, 3), (5.28, 1, 0, 6), (5.28, 10, 0, 1), (-1, 1, 0, 1)],
)
def test_frames_are_counted_as_the_service_counts(duration_s, interval_s, max_frames, expected):
    """One frame at the start and one at each full interval, up to the limit; 0 is no limit."""
    assert frame_count(duration_s, interval_s, max_frames) == expected


@given(durations, intervals, limits)
def test_times_are_as_many_as_counted_and_lie_in_the_video(duration_s, interval_s, max_frames):
    """Price and capture agree: as many times as counted, ascending from 0, none after the end."""
    times = frame_times(duration_s, interval_s, max_frames)
    assert len(times) == frame_count(duration_s, interval_s, max_frames) >= 1
    assert times[0] == 0
    assert times == sorted(set(times))
    assert times[-1] <= duration_s
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
    """The frame on screen counts, not time times average rate; times count from the first frame."""
    assert indices_at([0.0, 1.0, 2.0, 9.0], [7.0, 7.1, 7.2, 8.0, 9.5]) == [0, 3, 3, 4]


@pytest.mark.parametrize(("duration_s", "interval_s", "max_frames"), [(1, 0, 3), (1, 1, -1), (float("nan"), 1, 3)])
def test_nonsense_is_refused(duration_s, interval_s, max_frames):
    """No plan can be made of an interval below a second, a negative limit or a length that is no number."""
    with pytest.raises(ValueError, match="no sampling"):
        frame_count(duration_s, interval_s, max_frames)


def test_a_video_without_frames_has_none_to_pick():
    """Picking from nothing is the caller's mistake."""
    with pytest.raises(ValueError, match="no frames"):
        frame_indices([0.0], 25, 0)
    with pytest.raises(ValueError, match="no frames"):
        indices_at([0.0], [])
