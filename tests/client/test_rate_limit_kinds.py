"""The limiter against simulated limits of each kind, on a virtual clock."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightmeter.client.rate_limit import SendRecord
from lightmeter.client.rate_limit.pacer import RequestPacer
from lightmeter.client.rate_limit.rate_estimator import RateEstimator
from tests.bench.rate_limit.scenarios import LightmeterController
from tests.bench.rate_limit.simulation import REJECTED, Bucket, Cap, Window, recent_rate, simulate


@settings(max_examples=10, deadline=None)
@given(st.floats(3, 40), st.floats(0.2, 1), st.integers(0, 10**6))
def test_no_more_than_a_probe_above_the_limit(rate, burst_s, seed):
    """After three minutes, the limiter sends at most 1.04 times a bucket's rate and uses most of it."""
    rng = random.Random(seed)  # noqa: S311 (a simulation; no secret)
    report = simulate(LightmeterController(rng), Bucket(rng, lambda _: rate, burst_s=burst_s), rng, 300)
    tried = sorted(report.accepted_at + report.rejected)
    settled = [found for end, found in recent_rate(tried, 30, 300) if end > 180]
    assert max(settled) <= 1.04 * rate + 1 / 30
    assert sum(settled) / len(settled) >= 0.85 * rate


@settings(max_examples=10, deadline=None)
@given(st.integers(5, 200), st.floats(2, 60), st.integers(0, 10**6))
def test_nothing_leaves_before_a_retry_after_ends(most, period_s, seed):
    """Nothing is sent before a received Retry-After has ended, for any window."""
    rng = random.Random(seed)  # noqa: S311 (as above)
    report = simulate(LightmeterController(rng), Window(rng, most, period_s, header=True), rng, 200)
    assert report.too_early == 0
    assert report.accepted_at


class LoggedLimiter(LightmeterController):
    """The limiter with a log of each request: time, estimated rate, allowed rate, and the last rejection."""

    def __init__(self, rng):
        super().__init__(rng)
        self.left, self.rejected_at, self.episode = [], 0.0, 0

    def on_sent(self, now):
        ceiling = self.limiter.rate_estimator
        if ceiling is not None:
            self.left.append((now, ceiling.rate, ceiling.allowed(now), self.rejected_at))
        record = super().on_sent(now)
        self.episode = record.episode
        return record

    def on_throttled(self, now, retry_after_s, token):
        if token.episode == self.episode:
            self.rejected_at = now
        super().on_throttled(now, retry_after_s, token)


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 0.3), st.floats(1, 40), st.floats(0, 5), st.integers(0, 10**6))
def test_more_than_a_probe_is_tried_only_after_the_probe_has_passed(chance, rate, burst_s, seed):
    """For 8 s after a rejection at most 1.04 times the estimated rate is allowed."""
    rng = random.Random(seed)  # noqa: S311 (as above)

    class Whimsical(Bucket):
        def arrive(self, now):
            return REJECTED if rng.random() < chance else super().arrive(now)

    spied = LoggedLimiter(rng)
    simulate(spied, Whimsical(rng, lambda _: rate, burst_s=burst_s), rng, 200)
    for now, ceiling, allowed, rejected_at in spied.left:
        assert allowed <= 1.0401 * ceiling or now - rejected_at >= 8


@settings(max_examples=10, deadline=None)
@given(st.floats(3, 30), st.floats(0.5, 120), st.integers(0, 10**6))
@example(5.596, 110.61, 640166)  # a rejection shortly before the outage had made the rate low
@example(3.932, 115.3, 133227)
def test_an_outage_is_recovered_from(rate, outage_s, seed):
    """Most of the limit is used again within five minutes after an outage."""
    rng, end = random.Random(seed), 100 + outage_s  # noqa: S311 (as above)
    report = simulate(
        LightmeterController(rng), Bucket(rng, lambda now: 1e-9 if 100 <= now < end else rate), rng, end + 300
    )
    after = [found for at, found in recent_rate(report.accepted_at, 10, end + 300) if at > end + 10]
    assert max(after) >= 0.85 * rate
    assert sum(100 <= now < end for now in report.rejected) <= 15


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_a_number_at_once_is_found_however_small(most, seed):
    """A concurrency limit is distinguished from a rate limit, and nearly all of it is used."""
    rng = random.Random(seed)  # noqa: S311 (as above)
    service = Cap(rng, most)
    report = simulate(LightmeterController(rng), service, rng, 300)
    assert len(report.accepted_at) >= 0.85 * service.capacity(0, 300)
    assert len(report.rejected) <= 0.03 * len(report.accepted_at)


def test_late_timers_cost_next_to_nothing():
    """With timers 20 ms late, 95 % of a limit of 50 per second are used."""
    accepted = rejected = 0
    for seed in range(8):  # one alone may be unlucky with its probes
        rng = random.Random(seed)  # noqa: S311 (as above)
        report = simulate(LightmeterController(rng), Bucket(rng, lambda _: 50.0), rng, 300, late_s=0.02)
        accepted, rejected = accepted + len(report.accepted_at), rejected + len(report.rejected)
    assert accepted >= 0.95 * 8 * 50 * 300
    assert rejected <= 0.005 * accepted


@settings(deadline=None)
@given(st.floats(1, 100), st.floats(0, 60), st.lists(st.floats(0, 0.2), min_size=2, max_size=50))
def test_catching_up_is_bounded(rate, calm_s, late_s):
    """Late requests are caught up by at most 50 ms, and by 5 ms per second after a rejection."""
    spacing, now, left = RequestPacer(), 1000.0, []
    spacing.on_rejected(now - calm_s)
    for each_s in late_s:
        now += spacing.wait_s(now, rate) + each_s
        spacing.on_admitted(now, rate)
        left.append(now)
    caught_up_s = min(0.05, 0.005 + 0.005 * (now - 1000.0 + calm_s))
    assert all(later - earlier >= 1 / rate - caught_up_s - 1e-6 for earlier, later in pairwise(left))


@settings(max_examples=10, deadline=None)
@given(st.floats(3, 30), st.floats(2, 5), st.floats(150, 250), st.integers(0, 10**6))
def test_a_limit_that_rises_is_found_in_two_minutes(low, factor, up_at, seed):
    """Two minutes after a limit has risen severalfold, 90 % of it are used."""
    rng = random.Random(seed)  # noqa: S311 (as above)
    high = low * factor
    bucket = Bucket(rng, lambda now: low if 100 <= now < up_at else high)
    report = simulate(LightmeterController(rng), bucket, rng, up_at + 120)
    after = [rate for end, rate in recent_rate(report.accepted_at, 10, up_at + 120) if end >= up_at + 10]
    assert max(after) >= 0.9 * high


def first_step_s(ceiling, now, number=0):
    """Send until the first step of the next probe is over; return its length, the time, and the requests sent."""
    began = None
    while ceiling.probe_step < 1:
        ceiling.on_sent(now)
        began = now if began is None and ceiling.probe_step == 0 else began
        now, number = now + 1 / ceiling.allowed(now), number + 1
    return now - began, now, number


def test_a_fallen_limit_is_not_probed_for_the_burst_of_the_former_one():
    """The bucket size of a former limit is forgotten, so that probes are short again."""
    ceiling = RateEstimator(20.0, 0.0, None)
    _, now, number = first_step_s(ceiling, 0.0)
    ceiling.on_rejected(now, SendRecord(number, now, 0, 1, 0, 16.0), 1)
    ceiling.on_rejected(
        now + 1, SendRecord(number + 1, now + 1, 1, -1, 0, 16.0), 1
    )  # so it was a full bucket that paid
    learned_s, now, number = first_step_s(ceiling, now + 1, number + 1)
    ceiling.on_rejected(now, SendRecord(number, now, 2, 0, 0, 16.0), 1)
    while ceiling.rate > 5:
        now, number = now + 1, number + 1
        ceiling.on_not_accepted()
        ceiling.on_rejected(now, SendRecord(number, now, number, -1, 0, 16.0), 1)
    fallen_s, _, _ = first_step_s(ceiling, now, number)
    assert fallen_s <= 1.1 * learned_s


def test_a_bucket_that_holds_nothing_is_no_limit_in_flight():
    """A bucket without any burst is recognized as a rate limit, not as a concurrency limit."""
    for seed in range(4):
        rng = random.Random(seed)  # noqa: S311 (as above)
        ours = LightmeterController(rng)
        report = simulate(ours, Bucket(rng, lambda _: 10.0, burst_s=0.0), rng, 60)
        assert ours.limiter.concurrency_limit is None
        assert len(report.accepted_at) >= 0.55 * 600


class LightClient(LightmeterController):
    """A client with fewer requests than the limit allows, at random times."""

    def __init__(self, rng, per_s):
        super().__init__(rng)
        self.rng, self.per_s, self.due = rng, per_s, 0.0

    def wait_s(self, now, in_flight):
        return max(self.due - now, super().wait_s(now, in_flight))

    def on_sent(self, now):
        self.due += self.rng.expovariate(self.per_s)
        return super().on_sent(now)


@settings(max_examples=10, deadline=None)
@given(st.floats(2, 30), st.floats(0.1, 0.8), st.booleans(), st.integers(0, 10**6))
def test_demand_below_the_limit_is_not_held_back(rate, share, windows, seed):
    """A client that sends less than the limit is hardly held back."""
    rng = random.Random(seed)  # noqa: S311 (as above)
    service = Window(rng, int(20 * rate), 20.0, header=True) if windows else Bucket(rng, lambda _: rate)
    seldom = LightClient(rng, share * rate)
    report = simulate(seldom, service, rng, 400)
    assert seldom.due >= 400 - 10
    assert len(report.rejected) <= 0.02 * len(report.accepted_at) + 5
    assert report.too_early == 0
