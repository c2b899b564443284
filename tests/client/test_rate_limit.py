"""The pace keeps quiet when asked to, and always finds its way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.rate_limit import AdaptiveLimiter, Quota, parse_quota

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["sent", "answer", "throttled", "lost", "quota"]),
        st.floats(0, 5),
        st.none() | st.floats(0, 1000),
    ),
    max_size=60,
)
ENOUGH_S = 6 * 3600.0


def played(events, pace):
    """Play events; the time after the last, the latest end of a Retry-After, and the records still out."""
    now, quiet_until, out = 0.0, 0.0, []
    for event, pause_s, asked_s in events:
        now += pause_s
        if event == "sent" or (event in {"answer", "throttled", "lost"} and not out):
            pace.on_admitted(now)
            out.append(pace.on_sent(now))
        elif event == "answer":
            record = out.pop(0)
            pace.on_answer(now, now - record.sent_at, record)
        elif event == "lost":
            pace.on_lost(out.pop(0))
        elif event == "throttled":
            pace.on_throttled(now, asked_s, out.pop(0))
            quiet_until = max(quiet_until, now + (asked_s or 0.0))
        else:
            pace.on_quota(now, Quota(float(len(out)), 1 + (asked_s or 0.0)))
    return now, quiet_until, out


def sent_one(pace, now):
    """Send one request."""
    pace.on_admitted(now)
    return pace.on_sent(now)


def limited(rejected=2):
    """A pace that has met a limit on the rate, its door open again, and the time."""
    pace, now = AdaptiveLimiter(8), 0.0
    for _ in range(20):
        pace.on_answer(now + 0.1, 0.1, sent_one(pace, now))
        now += 0.1
    for _ in range(rejected):
        now += pace.wait_s(now, 0) + 1e-6
        pace.on_throttled(now, None, sent_one(pace, now))
    now += pace.wait_s(now, 0) + 1e-6
    pace.on_answer(now + 0.1, 0.1, sent_one(pace, now))
    return pace, now + 0.1


@given(EVENTS, st.floats(0, 2000))
def test_no_go_before_a_retry_after_ends(events, later_s):
    """Whatever else happened, nothing is sent before every Retry-After has ended."""
    pace = AdaptiveLimiter(16)
    now, quiet_until, _ = played(events, pace)
    if pace.wait_s(now + later_s, 0) == 0:
        assert now + later_s >= quiet_until


@given(EVENTS, st.integers(1, 40))
def test_always_recovers(events, max_in_flight):
    """After any history the door opens in finite time, and a service that takes everything is used fully again."""
    pace = AdaptiveLimiter(max_in_flight)
    now, _, out = played(events, pace)
    for record in out:
        pace.on_lost(record)
    end = now + ENOUGH_S
    while now < end:
        wait_s = pace.wait_s(now, 0)
        assert wait_s <= 1001  # the longest that was asked for, and nothing on top of it
        if wait_s:
            now += wait_s + 1e-6
            continue
        pace.on_answer(now + 0.1, 0.1, sent_one(pace, now))
        now += 0.1
        if (
            pace.wait_s(now, 0) == 0
            and (pace.rate_estimator is None or pace.rate_estimator.rate > 9)
            and (pace.concurrency_limit or 9) > 0
        ):
            return
    pytest.fail(f"still slow after {ENOUGH_S} s: {pace.state()}")


@given(EVENTS, st.integers(1, 40), st.integers(0, 200))
def test_the_window_holds(events, max_in_flight, in_flight):
    """Never more in flight than the limit, and waits are finite."""
    pace = AdaptiveLimiter(max_in_flight)
    now, _, _ = played(events, pace)
    assert 1 <= pace.in_flight_limit <= max_in_flight
    wait_s = pace.wait_s(now, in_flight)
    assert 0 <= wait_s < float("inf")
    assert wait_s > 0 or in_flight < max_in_flight


@given(EVENTS)
def test_what_was_learned_can_be_kept(events):
    """The state of any pace starts another one, at 0.7 of it, and holds nothing but numbers."""
    pace = AdaptiveLimiter(16)
    now, _, _ = played(events, pace)
    state = pace.state()
    again = AdaptiveLimiter(16)
    again.warm_start(state, now)
    assert all(isinstance(value, float) for value in state.values())
    if "rate" in state:
        assert again.state()["rate"] == pytest.approx(max(0.02, 0.7 * state["rate"]))
    elif "cap" in state:
        assert again.concurrency_limit == max(1, int(0.7 * state["cap"]))
    else:
        assert again.state() == {}


def test_one_decrease_for_each_episode():
    """Rejections of requests sent before the last decrease cost nothing more."""
    pace, now = limited()
    records = [sent_one(pace, now + each) for each in range(5)]
    pace.on_throttled(now + 5, None, records[0])
    learned = pace.rate_estimator.rate
    for record in records[1:]:
        pace.on_throttled(now + 6, None, record)
    assert pace.rate_estimator.rate == learned
    pace.on_throttled(now + 10, None, sent_one(pace, now + 9))
    pace.on_throttled(now + 12, None, sent_one(pace, now + 11))
    assert pace.rate_estimator.rate <= learned


def test_pauses_grow_while_nothing_gets_through():
    """Without a Retry-After each further episode doubles the pause, up to a minute; an answer makes it short again."""
    pace, now, pauses = AdaptiveLimiter(4, jitter=lambda: 1.0), 0.0, []
    for _ in range(12):
        pace.on_throttled(now, None, sent_one(pace, now))
        pauses.append(pace.wait_s(now, 0))
        now += pauses[-1] + 0.001
    assert pauses[:4] == pytest.approx([0.5, 1, 2, 4])
    assert pauses[-1] == pytest.approx(60)
    pace.on_answer(now + 0.1, 0.1, sent_one(pace, now))
    pace.on_throttled(now + 60, None, sent_one(pace, now + 60))
    assert pace.wait_s(now + 60, 0) <= 0.5


@given(st.floats(0, 1))
def test_pauses_are_half_fixed_half_chance(chance):
    """Equal jitter: a pause lies between half of it and all of it; a Retry-After is kept to the letter."""
    pace = AdaptiveLimiter(4, jitter=lambda: chance)
    pace.on_throttled(0.0, None, sent_one(pace, 0.0))
    assert pace.wait_s(0.0, 0) == pytest.approx(0.5 * (0.5 + 0.5 * chance))
    pace.on_throttled(0.1, 7.0, sent_one(pace, 0.1))
    assert pace.wait_s(0.1, 0) == pytest.approx(7.0)


def test_to_be_asked_to_wait_before_anything_was_taken_teaches_no_limit():
    """Who is told at once when to come back comes back then, with one request, and finds the limit as anyone else."""
    pace = AdaptiveLimiter(16)
    records = [sent_one(pace, 0.0) for _ in range(3)]
    for record in records:
        pace.on_throttled(0.1, 7.0, record)
    assert pace.wait_s(0.1, 0) == pytest.approx(7.0)
    knock = sent_one(pace, 7.2)
    assert pace.wait_s(7.3, 1) > 0
    pace.on_answer(7.3, 0.1, knock)
    assert (pace.rate_estimator, pace.concurrency_limit, pace.wait_s(7.3, 3)) == (None, None, 0.0)
    for number in range(30):
        pace.on_answer(7.4 + number, 0.1, sent_one(pace, 7.3 + number))
    pace.on_throttled(40.0, None, sent_one(pace, 39.9))
    assert pace.rate_estimator.rate == pytest.approx(30 / 32.7, rel=0.01)


def test_after_a_silence_one_request_knocks():
    """While nothing has been taken since the last rejection, one request at a time finds out."""
    pace, now = limited()
    pace.on_throttled(now, None, sent_one(pace, now))
    now += pace.wait_s(now, 0) + 1e-6
    knock = sent_one(pace, now)
    assert pace.wait_s(now + 0.5, 1) > 0
    pace.on_answer(now + 0.6, 0.6, knock)
    assert pace.wait_s(now + 60, 1) == 0


def test_requests_are_evenly_spaced():
    """Under a limit requests leave one by one: never two within one interval."""
    pace, now = limited()
    now += 10  # a long idle time saves nothing up
    for _ in range(3):
        pace.on_admitted(now)
        assert pace.wait_s(now, 0) == pytest.approx(1 / pace.rate_estimator.allowed(now))
        now += pace.wait_s(now, 0)


def test_a_hold_says_nothing_about_limits():
    """A pause for another reason shuts the door and teaches nothing."""
    pace = AdaptiveLimiter(4)
    pace.hold(5.0)
    assert pace.wait_s(1.0, 0) == pytest.approx(4.0)
    assert pace.wait_s(5.0, 0) == 0
    assert pace.state() == {}


def test_a_quota_is_spread_until_it_is_renewed():
    """Headers that state 10 requests for 20 s mean one each 2 s; none left means silence; then they are forgotten."""
    pace = AdaptiveLimiter(4)
    pace.on_quota(0.0, Quota(10, 20))
    pace.on_admitted(0.0)
    assert pace.wait_s(0.0, 0) == pytest.approx(2.0)
    pace.on_quota(1.0, Quota(0, 30))
    assert pace.wait_s(2.0, 0) == pytest.approx(29.0)
    pace.on_admitted(31.0)
    assert pace.wait_s(31.0, 0) == 0


@pytest.mark.parametrize(
    ("headers", "quota"),
    [
        ({"ratelimit": '"default";r=50;t=30'}, Quota(50, 30)),
        ({"ratelimit": '"day";r=5000;t=3600, "burst";t=5;r=1'}, Quota(1, 5)),
        ({"ratelimit-remaining": "3", "ratelimit-reset": "6"}, Quota(3, 6)),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1.5"}, Quota(0, 1.5)),
        (
            {
                "x-ratelimit-remaining": "7",
                "x-ratelimit-reset": "1767225660",
                "date": "Thu, 01 Jan 2026 00:00:00 GMT",
            },
            Quota(7, 60),
        ),
        ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": "1767225660"}, None),
        ({"x-ratelimit-remaining": "many", "x-ratelimit-reset": "soon"}, None),
        ({"ratelimit": '"default";r=50'}, None),
        ({}, None),
    ],
)
def test_quota_headers(headers, quota):
    """The tightest quota in any of the known spellings is read; what cannot be read is none."""
    assert parse_quota(headers) == quota


def test_at_least_one():
    """A limit that lets nothing through is a bug."""
    with pytest.raises(ValueError, match="at least 1"):
        AdaptiveLimiter(0)
