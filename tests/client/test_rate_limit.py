"""The limiter respects every Retry-After and always recovers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.rate_limit import AdaptiveLimiter, LimiterMode, Quota, SendRecord, parse_quota
from lightmeter.client.rate_limit.mode_transitions import TRANSITIONS, LimiterEvent, next_mode
from lightmeter.client.rate_limit.quota_window import QuotaWindow

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["sent", "answer", "throttled", "lost", "quota"]),
        st.floats(0, 5),
        st.none() | st.floats(0, 1000),
    ),
    max_size=60,
)
ENOUGH_S = 6 * 3600.0


def play_events(events, limiter):
    """Play events; return the time after the last, the latest end of a Retry-After, and the unanswered records."""
    now, quiet_until, out = 0.0, 0.0, []
    for event, pause_s, retry_after_s in events:
        now += pause_s
        if event == "sent" or (event in {"answer", "throttled", "lost"} and not out):
            limiter.on_admitted(now)
            out.append(limiter.on_sent(now))
        elif event == "answer":
            record = out.pop(0)
            limiter.on_answer(now, now - record.sent_at, record)
        elif event == "lost":
            limiter.on_lost(out.pop(0))
        elif event == "throttled":
            limiter.on_throttled(now, retry_after_s, out.pop(0))
            quiet_until = max(quiet_until, now + (retry_after_s or 0.0))
        else:
            limiter.on_quota(now, Quota(float(len(out)), 1 + (retry_after_s or 0.0)))
    return now, quiet_until, out


def send_one(limiter, now):
    """Send one request."""
    limiter.on_admitted(now)
    return limiter.on_sent(now)


def limiter_with_rate_limit(rejected=2):
    """Return a limiter with a rate limit and no pause, and the time."""
    limiter, now = AdaptiveLimiter(8), 0.0
    for _ in range(20):
        limiter.on_answer(now + 0.1, 0.1, send_one(limiter, now))
        now += 0.1
    for _ in range(rejected):
        now += limiter.wait_s(now, 0) + 1e-6
        limiter.on_throttled(now, None, send_one(limiter, now))
    now += limiter.wait_s(now, 0) + 1e-6
    limiter.on_answer(now + 0.1, 0.1, send_one(limiter, now))
    return limiter, now + 0.1


@given(EVENTS, st.floats(0, 2000))
def test_nothing_is_sent_before_a_retry_after_ends(events, later_s):
    """Nothing is sent before every Retry-After has ended, whatever else happened."""
    limiter = AdaptiveLimiter(16)
    now, quiet_until, _ = play_events(events, limiter)
    if limiter.wait_s(now + later_s, 0) == 0:
        assert now + later_s >= quiet_until


@given(EVENTS, st.integers(1, 40))
def test_always_recovers(events, max_in_flight):
    """After any history the backoff ends, and a service that accepts everything is used fully again."""
    limiter = AdaptiveLimiter(max_in_flight)
    now, _, out = play_events(events, limiter)
    for record in out:
        limiter.on_lost(record)
    end = now + ENOUGH_S
    while now < end:
        wait_s = limiter.wait_s(now, 0)
        assert wait_s <= 1001  # the longest that was asked for, and nothing on top of it
        if wait_s:
            now += wait_s + 1e-6
            continue
        limiter.on_answer(now + 0.1, 0.1, send_one(limiter, now))
        now += 0.1
        if (
            limiter.wait_s(now, 0) == 0
            and (limiter.rate_estimator is None or limiter.rate_estimator.rate > 9)
            and (limiter.concurrency_limit or 9) > 0
        ):
            return
    pytest.fail(f"still slow after {ENOUGH_S} s: {limiter.state()}")


@given(EVENTS, st.integers(1, 40), st.integers(0, 200))
def test_requests_in_flight_never_exceed_the_limit(events, max_in_flight, in_flight):
    """Requests in flight never exceed the limit, and waits are finite."""
    limiter = AdaptiveLimiter(max_in_flight)
    now, _, _ = play_events(events, limiter)
    assert 1 <= limiter.in_flight_limit <= max_in_flight
    wait_s = limiter.wait_s(now, in_flight)
    assert 0 <= wait_s < float("inf")
    assert wait_s > 0 or in_flight < max_in_flight


@given(EVENTS)
def test_state_starts_another_limiter(events):
    """The state of a limiter holds only numbers and starts another one at 0.7 of it."""
    limiter = AdaptiveLimiter(16)
    now, _, _ = play_events(events, limiter)
    state = limiter.state()
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
    """Rejections of requests sent before the last decrease do not decrease the rate again."""
    limiter, now = limiter_with_rate_limit()
    records = [send_one(limiter, now + each) for each in range(5)]
    limiter.on_throttled(now + 5, None, records[0])
    learned = limiter.rate_estimator.rate
    for record in records[1:]:
        limiter.on_throttled(now + 6, None, record)
    assert limiter.rate_estimator.rate == learned
    limiter.on_throttled(now + 10, None, send_one(limiter, now + 9))
    limiter.on_throttled(now + 12, None, send_one(limiter, now + 11))
    assert limiter.rate_estimator.rate <= learned


def test_pauses_grow_while_nothing_gets_through():
    """Without a Retry-After each further episode doubles the pause, up to a minute; an answer makes it short again."""
    limiter, now, pauses = AdaptiveLimiter(4, jitter=lambda: 1.0), 0.0, []
    for _ in range(12):
        limiter.on_throttled(now, None, send_one(limiter, now))
        pauses.append(limiter.wait_s(now, 0))
        now += pauses[-1] + 0.001
    assert pauses[:4] == pytest.approx([0.5, 1, 2, 4])
    assert pauses[-1] == pytest.approx(60)
    limiter.on_answer(now + 0.1, 0.1, send_one(limiter, now))
    limiter.on_throttled(now + 60, None, send_one(limiter, now + 60))
    assert limiter.wait_s(now + 60, 0) <= 0.5


@given(st.floats(0, 1))
def test_pauses_are_half_fixed_half_chance(chance):
    """Equal jitter: a pause is 50 to 100 % of its maximum; a Retry-After is exact."""
    limiter = AdaptiveLimiter(4, jitter=lambda: chance)
    limiter.on_throttled(0.0, None, send_one(limiter, 0.0))
    assert limiter.wait_s(0.0, 0) == pytest.approx(0.5 * (0.5 + 0.5 * chance))
    limiter.on_throttled(0.1, 7.0, send_one(limiter, 0.1))
    assert limiter.wait_s(0.1, 0) == pytest.approx(7.0)


def test_to_be_asked_to_wait_before_anything_was_taken_teaches_no_limit():
    """A Retry-After before anything was accepted sets no limit; one trial request follows it."""
    limiter = AdaptiveLimiter(16)
    records = [send_one(limiter, 0.0) for _ in range(3)]
    for record in records:
        limiter.on_throttled(0.1, 7.0, record)
    assert limiter.wait_s(0.1, 0) == pytest.approx(7.0)
    knock = send_one(limiter, 7.2)
    assert limiter.wait_s(7.3, 1) > 0
    limiter.on_answer(7.3, 0.1, knock)
    assert (limiter.rate_estimator, limiter.concurrency_limit, limiter.wait_s(7.3, 3)) == (None, None, 0.0)
    for number in range(30):
        limiter.on_answer(7.4 + number, 0.1, send_one(limiter, 7.3 + number))
    limiter.on_throttled(40.0, None, send_one(limiter, 39.9))
    assert limiter.rate_estimator.rate == pytest.approx(30 / 32.7, rel=0.01)


def test_one_trial_request_after_a_rejection():
    """After a rejection one trial request at a time is sent until one is accepted."""
    limiter, now = limiter_with_rate_limit()
    limiter.on_throttled(now, None, send_one(limiter, now))
    now += limiter.wait_s(now, 0) + 1e-6
    knock = send_one(limiter, now)
    assert limiter.wait_s(now + 0.5, 1) > 0
    limiter.on_answer(now + 0.6, 0.6, knock)
    assert limiter.wait_s(now + 60, 1) == 0


def test_requests_are_evenly_spaced():
    """Under a rate limit no two requests are sent within one interval."""
    limiter, now = limiter_with_rate_limit()
    now += 10  # a long idle time saves nothing up
    for _ in range(3):
        limiter.on_admitted(now)
        assert limiter.wait_s(now, 0) == pytest.approx(1 / limiter.rate_estimator.allowed(now))
        now += limiter.wait_s(now, 0)


def test_a_hold_says_nothing_about_limits():
    """A hold pauses sending and sets no limit."""
    limiter = AdaptiveLimiter(4)
    limiter.hold(5.0)
    assert limiter.wait_s(1.0, 0) == pytest.approx(4.0)
    assert limiter.wait_s(5.0, 0) == 0
    assert limiter.state() == {}


def test_a_quota_is_spread_until_it_is_renewed():
    """A stated quota is spread evenly over its time, and forgotten after it."""
    limiter = AdaptiveLimiter(4)
    limiter.on_quota(0.0, Quota(10, 20))
    limiter.on_admitted(0.0)
    assert limiter.wait_s(0.0, 0) == pytest.approx(2.0)
    limiter.on_quota(1.0, Quota(0, 30))
    assert limiter.wait_s(2.0, 0) == pytest.approx(29.0)
    limiter.on_admitted(31.0)
    assert limiter.wait_s(31.0, 0) == 0


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
    """The tightest quota in any known header is read; invalid headers are ignored."""
    assert parse_quota(headers) == quota


def test_a_date_without_time_zone_is_utc(monkeypatch):
    """A `Date` header with the zone -0000 is UTC, whatever the time zone of the machine is."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        headers = {"date": "Sun, 09 Sep 2001 01:46:41 -0000", "x-ratelimit-remaining": "5"}
        assert parse_quota({**headers, "x-ratelimit-reset": "1000000031"}) == Quota(5, 30)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_at_least_one():
    """A limit of zero requests in flight raises `ValueError`."""
    with pytest.raises(ValueError, match="at least 1"):
        AdaptiveLimiter(0)


def test_every_transition_in_the_table():
    """Each pair in the table leads to its mode, and any other pair raises."""
    for mode in LimiterMode:
        for event in LimiterEvent:
            if (mode, event) in TRANSITIONS:
                assert next_mode(mode, event) is TRANSITIONS[mode, event]
            else:
                with pytest.raises(ValueError, match=event.name):
                    next_mode(mode, event)


@given(EVENTS)
def test_the_mode_says_which_limit_is_known(events):
    """A limiter has a rate estimator in the modes RATE and CONGESTION only, and no limit when UNLIMITED."""
    limiter = AdaptiveLimiter(16)
    play_events(events, limiter)
    assert (limiter.rate_estimator is not None) == (limiter.mode in {LimiterMode.RATE, LimiterMode.CONGESTION})
    assert limiter.mode is not LimiterMode.UNLIMITED or limiter.concurrency_limit is None


def test_a_reset_after_no_time_at_all():
    """A window whose rejections began and ended at the same time has a quota, and no division by zero."""
    window = QuotaWindow(SendRecord(0, 0.0, 0, -1, 0, 16.0), 0)
    for number in (10, 20):
        window.on_reset(SendRecord(number, float(number), 0, -1, 0, 16.0), number - 1.0, number - 1.0)
    assert window.quota == 10
