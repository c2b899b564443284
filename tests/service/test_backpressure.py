"""Requests beyond the limit of pending pictures are refused with a realistic Retry-After."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from lightmeter.service.analysis.backpressure import AdmissionController, ServiceOverloaded

ACCOUNT, OTHER, THIRD = 1, 2, 3


class Hands:
    """A clock that a test sets."""

    def __init__(self):
        self.at = 100.0

    def now(self):
        return self.at

    def monotonic(self):
        return self.at

    async def sleep(self, seconds):
        self.at += seconds


@pytest.fixture
def clock():
    """A clock that does not advance by itself."""
    return Hands()


def test_no_more_waits_than_the_limit(clock):
    """With a limit of ten, an eleventh picture is refused until another is finished."""
    controller = AdmissionController(10, clock)
    with controller.admit(ACCOUNT, 9):
        with controller.admit(ACCOUNT, 1), pytest.raises(ServiceOverloaded):
            controller.admit(ACCOUNT, 1)
        controller.admit(ACCOUNT, 1)
    assert controller.pending_pictures == 0


def test_a_request_larger_than_the_limit_is_taken_when_nothing_waits(clock):
    """A request larger than the limit is accepted if nothing else waits."""
    controller = AdmissionController(10, clock)
    with controller.admit(ACCOUNT, 1000), pytest.raises(ServiceOverloaded):
        controller.admit(ACCOUNT, 1)


def test_what_waits_elsewhere_counts(clock):
    """Pictures in a queue on disk count toward the limit."""
    controller = AdmissionController(10, clock)
    controller.admit(ACCOUNT, 5, waiting_requests={ACCOUNT: 5})
    with pytest.raises(ServiceOverloaded):
        controller.admit(ACCOUNT, 6, waiting_requests={ACCOUNT: 5})


def test_a_full_account_leaves_half_to_others(clock):
    """An account at its limit leaves half of the capacity to a second one, which leaves a part of it to a third one."""
    controller = AdmissionController(8, clock)
    with controller.reserve(ACCOUNT, 1000), controller.admit(OTHER, 1), controller.admit(OTHER, 3):
        with pytest.raises(ServiceOverloaded):
            controller.admit(OTHER, 1)
        with controller.admit(THIRD, 2), pytest.raises(ServiceOverloaded):
            controller.admit(THIRD, 1)


def test_large_requests_of_several_accounts_do_not_refuse_the_others(clock):
    """However large the first requests of many accounts are, the next account has a part of the capacity."""
    controller = AdmissionController(2000, clock)
    with ExitStack() as stack:
        for account in range(10):
            stack.enter_context(controller.admit(account, 100_000))
        with controller.admit(10, 1), controller.admit(10, 1), pytest.raises(ServiceOverloaded):
            controller.admit(10, 100)
        for account in range(10, 40):
            stack.enter_context(controller.admit(account, 100_000))
        with controller.admit(40, 1), pytest.raises(ServiceOverloaded):
            controller.admit(40, 1)


def test_requests_of_others_that_wait_count_for_their_share(clock):
    """A thousand queued requests of one account do not refuse those of another."""
    controller = AdmissionController(10, clock)
    controller.admit(OTHER, 5, waiting_requests={ACCOUNT: 1000})
    with controller.admit(OTHER, 1, waiting_requests={ACCOUNT: 1000}), pytest.raises(ServiceOverloaded):
        controller.admit(OTHER, 5, waiting_requests={ACCOUNT: 1000})


def test_acknowledged_requests_are_never_refused(clock):
    """An acknowledged request is always accepted when it comes from its queue."""
    controller = AdmissionController(10, clock)
    with controller.reserve(ACCOUNT, 10), controller.reserve(ACCOUNT, 1000):
        assert controller.pending_pictures == 1010


def test_a_reservation_counts_only_while_entered(clock):
    """A reservation counts only while it is entered."""
    controller = AdmissionController(10, clock)
    controller.admit(ACCOUNT, 10)
    controller.admit(ACCOUNT, 10)
    assert controller.pending_pictures == 0


def test_retry_after_follows_the_throughput(clock):
    """With 20 pictures too many and 4 a second, Retry-After is 5 seconds."""
    controller = AdmissionController(100, clock)
    with controller.reserve(ACCOUNT, 100):
        for _ in range(10):
            clock.at += 0.25
            controller.record_finished(1)
        with pytest.raises(ServiceOverloaded, match="Try again in 5 s") as busy:
            controller.admit(ACCOUNT, 20)
    assert busy.value.retry_after_s == 5


def test_idle_time_does_not_lower_the_throughput(clock):
    """Idle time does not lower the measured throughput."""
    controller = AdmissionController(100, clock)
    with controller.reserve(ACCOUNT, 100):
        clock.at += 1
        controller.record_finished(50)
    clock.at += 3600
    with controller.reserve(ACCOUNT, 100):
        assert controller.pictures_per_s() == pytest.approx(50)
        clock.at += 2
        controller.record_finished(20)
        assert controller.pictures_per_s() == pytest.approx(10)


def test_retry_after_always_exists(clock):
    """Retry-After exists before any measurement, and is at most five minutes."""
    controller = AdmissionController(10, clock)
    with controller.reserve(ACCOUNT, 1_000_000), pytest.raises(ServiceOverloaded) as busy:
        controller.admit(ACCOUNT, 1)
    assert 1 <= busy.value.retry_after_s <= 300
