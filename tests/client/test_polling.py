"""Polls come soon for what is quick, rarely for what is slow, and end at a deadline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.polling import PollSchedule

SCHEDULE = PollSchedule()


def polls_until(done_s, schedule=SCHEDULE):
    """When the polls of a request come that is done at `done_s`."""
    times, age_s = [], 0.0
    while age_s < done_s and not schedule.expired(age_s):
        age_s += schedule.next_delay(len(times), age_s)
        times.append(age_s)
    return times


def test_first_delays():
    """The first poll comes after 0.2 s, the next ones later and later, up to the recommended 2 s."""
    delays = [SCHEDULE.next_delay(polls, 0.0) for polls in range(8)]
    assert delays[:3] == pytest.approx([0.2, 0.32, 0.512])
    assert delays[-1] == 2.0


def test_old_requests_are_polled_rarely():
    """Requests of minutes are polled more and more rarely, down to once in ten seconds."""
    assert SCHEDULE.next_delay(30, 60.0) == pytest.approx(3.0)
    assert SCHEDULE.next_delay(10**6, 3600.0) == 10.0


def test_every_schedule_ends():
    """The last poll is at the deadline, and then it is over."""
    schedule = PollSchedule(deadline_s=30.0)
    times = polls_until(float("inf"), schedule)
    assert times[-1] == pytest.approx(30.0)
    assert schedule.expired(times[-1] + 1e-9)
    assert schedule.next_delay(5, 31.0) == 0.0


@given(st.floats(0.5, 20_000))
def test_little_time_is_added(done_s):
    """A result is found within the recommended interval, or a twentieth of its age, or ten seconds."""
    found_s = polls_until(done_s)[-1]
    assert found_s - done_s <= min(10.0, max(2.0, 0.05 * found_s)) + 1e-6


@given(st.integers(0, 10**9), st.floats(0, 10**7))
def test_delays_stay_in_bounds(polls, age_s):
    """No delay is negative, over ten seconds, or past the deadline; none is zero before it."""
    delay_s = SCHEDULE.next_delay(polls, age_s)
    assert 0 <= delay_s <= 10.0
    assert SCHEDULE.expired(age_s) or delay_s > 0


@pytest.mark.parametrize("wrong", [{"first_s": 0}, {"factor": 1}, {"max_s": 0.1}, {"deadline_s": 0}])
def test_what_is_no_schedule(wrong):
    """A schedule that would poll without pause, or never, is refused."""
    with pytest.raises(ValueError, match="no schedule"):
        PollSchedule(**wrong)
