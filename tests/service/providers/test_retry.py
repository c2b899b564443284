"""Retries of provider calls, on a clock that advances only while a test sleeps or calls."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import BackendError
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.retry import FIRST_PAUSE_S, JITTER, Retrier

MAX_ATTEMPTS, DEADLINE_S, MAX_PAUSE_S = 4, 120.0, 60.0
FAILURES = st.builds(
    CallFailed,
    st.sampled_from(FailureKind),
    st.just("because"),
    is_transient=st.booleans(),
    retry_after_s=st.none() | st.floats(0, 200),
)


class Clock:
    """Clock that advances only by `sleep` and by calls; it records when each call started and its time limit."""

    def __init__(self):
        self.seconds = 0.0
        self.calls = []
        self.pauses = []

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        assert seconds > 0
        self.pauses.append(seconds)
        self.seconds += seconds

    def call_with(self, *outcomes, duration_s=0.0):
        """Return a call that raises or returns one outcome after the other; the last outcome is repeated."""
        remaining = list(outcomes)

        def call(timeout_s):
            self.calls.append((self.seconds, timeout_s))
            self.seconds += min(duration_s, timeout_s)
            outcome = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return call


def throttled(wait_s=None):
    return CallFailed(FailureKind.THROTTLED, "throttled", is_transient=True, retry_after_s=wait_s)


def broken(wait_s=None):
    return CallFailed(FailureKind.BROKEN, "broken", is_transient=True, retry_after_s=wait_s)


def run(retrier, call):
    """Run a call with a deadline that starts now."""
    return retrier.run(call, retrier.deadline())


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def new_retrier(clock):
    """Factory of retriers on the clock."""

    def make(**more):
        settings = ProviderSettings("mine", "https://a/v1", "m", **more)
        return Retrier(settings, monotonic=clock.now, sleep=clock.sleep)

    return make


def test_pauses_double(new_retrier, clock):
    """Pauses are 0.5, 1 and 2 seconds, each up to a quarter longer, and never longer than the longest pause."""
    with pytest.raises(BackendError):
        run(new_retrier(max_attempts=5, max_pause_s=3.0), clock.call_with(broken()))
    starts = [at for at, _ in clock.calls]
    pauses = [after - before for before, after in pairwise(starts)]
    for pause, least in zip(pauses, (0.5, 1, 2, 3), strict=True):
        assert least <= pause <= least * 1.25


@pytest.mark.parametrize("failure", [throttled, broken])
def test_no_call_before_the_requested_wait_ends(new_retrier, clock, failure):
    """The next call waits as long as the provider asks, if that is longer than the own pause."""
    assert run(new_retrier(), clock.call_with(failure(20.0), "yes")) == "yes"
    assert 20 <= clock.calls[1][0] <= 25


def test_throttling_holds_back_all_callers(new_retrier, clock):
    """After one call is throttled, other calls wait too; after a transient error they do not."""
    retrier = new_retrier(max_attempts=1)
    with pytest.raises(BackendError):
        run(retrier, clock.call_with(throttled(20.0)))
    assert run(retrier, clock.call_with("yes")) == "yes"
    assert clock.calls[1][0] >= 20
    with pytest.raises(BackendError):
        run(retrier, clock.call_with(broken()))
    at = clock.seconds
    run(retrier, clock.call_with("yes"))
    assert clock.calls[-1][0] == at


def test_no_call_after_the_end(new_retrier, clock):
    """A call that fails while the adapter is closed is not repeated, because its answer would be paid and lost."""
    retrier = new_retrier()

    def call(timeout_s):
        retrier.close()
        return clock.call_with(broken())(timeout_s)

    with pytest.raises(BackendError, match="stopping"):
        run(retrier, call)
    assert len(clock.calls) == 1


def test_calls_are_held_back_no_longer_than_the_longest_pause(new_retrier, clock):
    """If a provider asks for a day, that call fails, and the next call is made after the longest pause."""
    retrier = new_retrier(max_pause_s=60.0)
    with pytest.raises(BackendError):
        run(retrier, clock.call_with(throttled(86_400.0)))
    assert run(retrier, clock.call_with("yes")) == "yes"
    assert 60 <= clock.calls[1][0] <= 75


def test_a_wait_beyond_the_deadline_fails_at_once(new_retrier, clock):
    """A call that would be held back beyond its deadline fails without being made."""
    retrier = new_retrier(max_attempts=1, deadline_s=10.0)
    with pytest.raises(BackendError):
        run(retrier, clock.call_with(throttled(30.0)))
    with pytest.raises(BackendError, match="limits the rate of calls"):
        run(retrier, clock.call_with("yes"))
    assert (len(clock.calls), clock.seconds) == (1, 0)


def test_refusals_are_not_retried(new_retrier, clock):
    """A failure that is not transient ends the retries."""
    with pytest.raises(BackendError, match="no"):
        run(new_retrier(), clock.call_with(CallFailed(FailureKind.REFUSED, "no")))
    assert len(clock.calls) == 1


def test_no_call_starts_after_the_deadline(new_retrier, clock):
    """If earlier calls used up the time of a picture, the next call is not made."""
    retrier = new_retrier()
    deadline = retrier.deadline()
    clock.seconds = deadline + 1
    with pytest.raises(BackendError, match="no time was left"):
        retrier.run(pytest.fail, deadline)


@given(
    attempts=st.integers(1, 6),
    timeout_s=st.floats(0.1, 100),
    deadline_s=st.floats(0.1, 300),
    duration_s=st.floats(0, 100),
    hints=st.lists(st.none() | st.floats(0, 200), min_size=1, max_size=6),
)
def test_limits_hold_together(attempts, timeout_s, deadline_s, duration_s, hints):
    """No more calls than allowed are made, none starts after the deadline, and none may last beyond it."""
    clock = Clock()
    settings = ProviderSettings(
        "m", "https://a", "m", max_attempts=attempts, timeout_s=timeout_s, deadline_s=deadline_s
    )
    retrier = Retrier(settings, monotonic=clock.now, sleep=clock.sleep)
    with pytest.raises(BackendError):
        run(retrier, clock.call_with(*map(throttled, hints), duration_s=duration_s))
    assert 1 <= len(clock.calls) <= attempts
    for at, allowed_s in clock.calls:
        assert allowed_s <= timeout_s
        assert at < deadline_s
        assert 0 < allowed_s <= deadline_s - at


@given(failures=st.lists(FAILURES, max_size=6), luck=st.floats(0, 1), duration_s=st.floats(0, 90))
def test_why_retries_end(failures, luck, duration_s):
    """Calls end at a success, a failure that is not transient, the last attempt, too long a pause, or the deadline."""
    clock = Clock()
    settings = ProviderSettings(
        "m", "https://a", "m", max_attempts=MAX_ATTEMPTS, deadline_s=DEADLINE_S, max_pause_s=MAX_PAUSE_S
    )
    jitter = 1 + luck * JITTER
    retrier = Retrier(
        settings, monotonic=clock.now, sleep=clock.sleep, uniform=lambda low, high: low + luck * (high - low)
    )
    try:
        outcome = run(retrier, clock.call_with(*failures, "answer", duration_s=duration_s))
    except BackendError as error:
        outcome = str(error)
    call_count = len(clock.calls)
    if outcome == "answer":
        assert call_count == len(failures) + 1
    else:
        last = failures[call_count - 1]
        pause_s = last.retry_after_s or FIRST_PAUSE_S * 2 ** (call_count - 1)
        is_too_late = clock.seconds + pause_s * jitter >= DEADLINE_S
        assert not last.is_transient or call_count == MAX_ATTEMPTS or pause_s > MAX_PAUSE_S or is_too_late
        assert outcome.endswith(": because")
    assert 1 <= call_count <= MAX_ATTEMPTS
    for failure, pause_s in zip(failures, clock.pauses, strict=False):
        assert failure.is_transient
        assert (failure.retry_after_s or 0) <= pause_s <= MAX_PAUSE_S * (1 + JITTER)
