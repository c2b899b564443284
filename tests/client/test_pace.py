"""The pace keeps quiet when asked to, and always finds its way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.pace import Pace

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["sent", "answer", "throttled"]),
        st.floats(0, 5),
        st.none() | st.floats(0, 1000),
    ),
    max_size=60,
)


def played(events, pace):
    """The pace after these events, the time after the last, and the latest end of a Retry-After."""
    now, quiet_until = 0.0, 0.0
    for event, pause_s, retry_after_s in events:
        now += pause_s
        if event == "sent":
            pace.on_sent(now)
        elif event == "answer":
            pace.on_answer(now, pause_s)
        else:
            pace.on_throttled(now, retry_after_s)
            quiet_until = max(quiet_until, now + (retry_after_s or 0.0))
    return now, quiet_until


@given(EVENTS, st.floats(0, 2000))
def test_no_go_before_a_retry_after_ends(events, later_s):
    """Whatever else happened, nothing is sent before every Retry-After has ended."""
    pace = Pace(16)
    now, quiet_until = played(events, pace)
    if pace.wait_s(now + later_s, 0) == 0:
        assert now + later_s >= quiet_until


@given(EVENTS, st.integers(1, 40))
def test_always_recovers(events, max_in_flight):
    """After any history the door opens in finite time, and good answers bring the whole window back."""
    pace = Pace(max_in_flight)
    now, _ = played(events, pace)
    now += pace.wait_s(now, 0)
    now += pace.wait_s(now, 0)  # a sum of floats may fall a hair short of the instant
    assert pace.wait_s(now, 0) == 0
    for _ in range(max_in_flight**2):
        pace.on_sent(now)
        now += 0.1
        pace.on_answer(now, 0.1)
    assert pace.window == max_in_flight
    assert pace.wait_s(now, max_in_flight - 1) == 0


@given(EVENTS, st.integers(1, 40), st.integers(0, 200))
def test_the_window_holds(events, max_in_flight, in_flight):
    """Never more in flight than the window, which is at least one and at most the limit; waits are finite."""
    pace = Pace(max_in_flight)
    now, _ = played(events, pace)
    assert 1 <= pace.window <= max_in_flight
    wait_s = pace.wait_s(now, in_flight)
    assert 0 <= wait_s < float("inf")
    assert wait_s > 0 or in_flight < pace.window


def test_one_decrease_for_each_episode():
    """Rejections of requests sent before the last closing cost the window nothing more."""
    pace = Pace(8)
    for _ in range(8):
        pace.on_sent(0.0)
    for late_s in range(8):
        pace.on_throttled(1.0 + late_s / 100, None)
    assert pace.window == pytest.approx(8 * 0.7)
    pace.on_throttled(60.0, None)  # still of those sent at 0
    assert pace.window == pytest.approx(8 * 0.7)
    pace.on_sent(61.0)
    pace.on_throttled(62.0, None)
    assert pace.window == pytest.approx(8 * 0.7 * 0.7)


def test_pauses_grow_while_nothing_gets_through():
    """Without a Retry-After each further episode doubles the pause, and an answer brings back the first."""
    pace, now, pauses = Pace(4), 0.0, []
    for _ in range(10):
        pace.on_sent(now)
        pace.on_throttled(now, None)
        pauses.append(pace.wait_s(now, 0))
        now += pauses[-1] + 0.001
    assert pauses[:4] == pytest.approx([0.5, 1, 2, 4])
    assert pauses[-1] == pytest.approx(60)
    pace.on_sent(now)
    pace.on_answer(now + 0.1, 0.1)
    pace.on_sent(now + 1)
    pace.on_throttled(now + 1, None)
    assert pace.wait_s(now + 1, 0) == pytest.approx(0.5)


def test_at_least_one():
    """A limit that lets nothing through is a bug."""
    with pytest.raises(ValueError, match="at least 1"):
        Pace(0)
