"""Polls come when a result is likely: soon for quick requests, rarely for slow ones, and never past a deadline."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.polling import PollSchedule

SCHEDULE = PollSchedule()


def polls_until(done_s, schedule=SCHEDULE, kind="", size=1):
    """Return the times of all polls of a request that is done at `done_s`."""
    times, age_s = [], 0.0
    while age_s < done_s and age_s < schedule.deadline_s:
        age_s += schedule.next_delay(len(times), age_s, kind, size)
        times.append(age_s)
    return times


def teach(schedule, seconds, kind="", size=1):
    """Let a schedule learn from requests with these completion times; return the polls of each."""
    polls = []
    for done_s in seconds:
        times = polls_until(done_s, schedule, kind, size)
        schedule.on_done(kind, size, times[-2] if len(times) > 1 else 0.0, times[-1])
        polls.append(times)
    return polls


def test_first_delays():
    """The first poll comes after 0.2 s, the next ones later and later, up to the recommended 2 s."""
    delays = [SCHEDULE.next_delay(polls, 0.0) for polls in range(8)]
    assert delays[:3] == pytest.approx([0.2, 0.32, 0.512])
    assert delays[-1] == 2.0


def test_old_requests_are_polled_rarely():
    """Requests of minutes are polled more and more rarely, down to once in ten seconds while nothing is known."""
    assert SCHEDULE.next_delay(30, 60.0) == pytest.approx(3.0)
    assert SCHEDULE.next_delay(10**6, 3600.0) == 10.0


def test_every_schedule_ends():
    """The last poll is at the deadline."""
    schedule = PollSchedule(deadline_s=30.0)
    times = polls_until(float("inf"), schedule)
    assert times[-1] == pytest.approx(30.0)
    assert schedule.next_delay(5, 31.0) == 0.0


@given(st.floats(0.5, 20_000))
def test_little_time_is_added(done_s):
    """Without learning, a result is found within 2 s, a twentieth of its age, or 10 s."""
    found_s = polls_until(done_s)[-1]
    assert found_s - done_s <= min(10.0, max(2.0, 0.05 * found_s)) + 1e-6


@pytest.mark.parametrize("typical_s", [3, 10, 60, 300])
@pytest.mark.parametrize("spread", [0.05, 0.15, 0.3, 0.5])
def test_few_polls_and_little_added_once_learned(typical_s, spread):
    """Jobs of 3 to 300 s need at most 5 polls on average, and finish at most 12 % late."""
    schedule, rng = PollSchedule(), random.Random(typical_s)  # noqa: S311 (a repeatable draw; no secret)
    seconds = [typical_s * rng.lognormvariate(0, spread) for _ in range(400)]
    teach(schedule, seconds[:100])
    polls = teach(schedule, seconds[100:])
    assert sum(map(len, polls)) <= 5 * len(polls)
    assert sum(times[-1] for times in polls) <= 1.12 * sum(seconds[100:])


@given(
    st.lists(st.floats(0.01, 80_000), max_size=40), st.integers(0, 10**9), st.floats(0, 10**7), st.integers(-5, 10**6)
)
def test_delays_stay_in_bounds(taught, polls, age_s, size):
    """No request goes unpolled for 15 minutes, and no delay is zero before the deadline."""
    schedule = PollSchedule()
    for done_s in taught:
        schedule.on_done("", size, done_s / 2, done_s)
    delay_s = schedule.next_delay(polls, age_s, "", size)
    assert 0 <= delay_s <= 900
    assert age_s >= schedule.deadline_s or delay_s > 0


def test_kinds_and_sizes_are_learned_apart():
    """Completion times of videos or large batches do not affect the schedule of single pictures."""
    schedule = PollSchedule()
    teach(schedule, [60.0] * 20, "video", 1)
    teach(schedule, [30.0] * 20, "image", 100)
    assert schedule.next_delay(0, 0.0, "video", 1) > 30
    assert schedule.next_delay(0, 0.0, "image", 100) == schedule.next_delay(0, 0.0, "image", 120) > 15
    assert schedule.next_delay(0, 0.0, "image", 1) == pytest.approx(0.2)


def test_what_has_changed_is_learned_anew():
    """Old completion times are forgotten: a service that has become quicker is polled sooner."""
    schedule = PollSchedule()
    teach(schedule, [100.0] * 200)
    slow_s = schedule.next_delay(0, 0.0)
    teach(schedule, [5.0] * 200)
    assert schedule.next_delay(0, 0.0) < 10 < slow_s


@given(st.integers(1, 20_000))
def test_no_burst_on_restart(outstanding):
    """Requests that an earlier run left are polled at 50 per second at most, and within 15 minutes."""
    delays = sorted(SCHEDULE.resumed_poll_delay(place) for place in range(outstanding))
    assert 0 <= delays[0] <= delays[-1] <= 900
    assert all(later - delay >= 0.99 for delay, later in zip(delays, delays[50:], strict=False))
