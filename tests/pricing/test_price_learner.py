"""Learned prices bound every later charge, become exact, and are dropped when a charge contradicts them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.pricing.estimate import CreditRange, FrameRange
from lightmeter.pricing.price_learner import (
    AGREEING_AFTER_CHANGE,
    Charge,
    PriceChange,
    PriceLearner,
    cheapest_batch,
)
from lightmeter.pricing.rates import Rounding, default_rates, millicredits_per_image, request_price, whole_credits

RATES = default_rates()
TAGS, FACES, TEXTS = KINDS = ("tags", "faces", "texts")
PRIOR = {
    TAGS: millicredits_per_image(RATES, ["clarifai"], ["tags"]),
    FACES: millicredits_per_image(RATES, ["clarifai"], ["tags"])
    + millicredits_per_image(RATES, ["rekognition", "googlevision"], ["faces"]),
    TEXTS: 2 * millicredits_per_image(RATES, ["claude"], ["descriptions"])
    + millicredits_per_image(RATES, ["googlevision"], ["texts"]),
}
TABLES = {
    "as published": PRIOR,
    "seven thirds": {kind: milli * 7 // 3 + 1 for kind, milli in PRIOR.items()},
    "cheap": {kind: milli // 50 for kind, milli in PRIOR.items()},
    "whole credits": {kind: 1000 * (milli // 150) for kind, milli in PRIOR.items()},
}


@dataclass(frozen=True)
class Service:
    """A simulated service with its own prices and rounding."""

    prices: dict[str, int]
    rounding: Rounding

    def charge(self, kind: str, *frames: int) -> int:
        return request_price(self.prices[kind], frames, self.rounding)


def exactly(count: int) -> FrameRange:
    return FrameRange(count, count)


SERVICES = st.builds(Service, st.sampled_from(list(TABLES.values())), st.sampled_from(Rounding))
COUNTS = st.integers(1, 60)
REQUEST = st.tuples(st.sampled_from(KINDS), COUNTS)


@given(SERVICES, st.lists(REQUEST, max_size=25), st.integers(0, 30))
def test_a_hold_is_never_below_a_charge(service, requests, unsure):
    """After one charge of a kind, every later charge is in its range, whatever the prices and the rounding."""
    learner = PriceLearner(PRIOR)
    for kind, count in requests:
        paid = service.charge(kind, count)
        if learner.knows(kind):
            assert paid in learner.price(kind, exactly(count))
            assert paid in learner.price(kind, FrameRange(max(0, count - unsure), count + unsure))
        frames = FrameRange(max(0, count - unsure), count + unsure)
        assert learner.observe(Charge(kind, frames, paid)) is None
        assert service.rounding in learner.roundings


@given(SERVICES, st.lists(REQUEST, min_size=1, max_size=25))
def test_what_was_seen_is_exact(service, requests):
    """The price of a number of pictures that was charged before is exact."""
    learner = PriceLearner(PRIOR)
    for kind, count in requests:
        learner.observe(Charge(kind, exactly(count), service.charge(kind, count)))
    for kind, count in requests:
        paid = service.charge(kind, count)
        assert learner.price(kind, exactly(count)) == CreditRange(paid, paid)


@given(SERVICES, st.lists(REQUEST, min_size=1, max_size=25), COUNTS)
def test_learning_never_widens(service, requests, question):
    """While charges agree, no range gets wider."""
    learner = PriceLearner(PRIOR)
    before = {kind: CreditRange(0, None) for kind in KINDS}
    for kind, count in requests:
        learner.observe(Charge(kind, exactly(count), service.charge(kind, count)))
        now, was = learner.price(kind, exactly(question)), before[kind]
        assert now.low >= was.low
        assert was.high is None or (now.high is not None and now.high <= was.high)
        before[kind] = now


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("name", TABLES)
def test_a_run_gets_exact(name, rounding):
    """One of each, then batches of each: every later request of the run is predicted to the credit."""
    service, learner = Service(TABLES[name], rounding), PriceLearner(PRIOR)
    sizes = (1, 10, 40)
    for kind in KINDS:
        for count in sizes:
            assert learner.observe(Charge(kind, exactly(count), service.charge(kind, count))) is None
    for kind in KINDS:
        for count in sizes:
            paid = service.charge(kind, count)
            assert learner.price(kind, exactly(count)) == CreditRange(paid, paid)
    fits = rounding is Rounding.REQUEST and name != "whole credits"
    assert learner.rounding is (Rounding.REQUEST if fits else None)  # whole credits an image explain all the others
    assert learner.likely_rounding is (rounding if fits or name == "as published" else None)


def test_the_rounding_is_found_out():
    """Ten pictures at 0.15 cost two credits if the request is rounded up, and ten if each picture is."""
    for paid, rounding in ((2, Rounding.REQUEST), (10, Rounding.IMAGE)):
        learner = PriceLearner(PRIOR)
        learner.observe(Charge(TAGS, exactly(1), 1))
        assert learner.rounding is None
        assert learner.price(TAGS, exactly(10)) == CreditRange(1, 10)
        learner.observe(Charge(TAGS, exactly(10), paid))
        assert learner.rounding is (rounding if paid == 2 else None)  # a whole credit each would be ten as well
        assert learner.price(TAGS, exactly(10)) == CreditRange(paid, paid)
    learner.observe(Charge(FACES, exactly(10), 5))
    assert learner.rounding is Rounding.REQUEST


def test_a_rounding_found_out_with_one_kind_holds_for_all():
    """A rounding that the charges of one kind of request rule out is ruled out for all."""
    learner = PriceLearner(PRIOR)
    learner.observe(Charge(TAGS, exactly(10), 2))
    assert learner.price(FACES, exactly(10)) == CreditRange(5, 5)
    assert not learner.knows(FACES)


def test_before_any_charge_the_table_is_believed():
    """A kind without a charge has the price of the table, rounded either way; without one it has no upper end."""
    learner = PriceLearner(PRIOR)
    assert learner.price(TAGS, exactly(10)) == CreditRange(2, 10)
    assert learner.price(TEXTS, exactly(1)) == CreditRange(7, 7)
    assert learner.price("nobody", exactly(3)) == CreditRange(0, None)
    assert learner.price(TAGS, FrameRange(1, None)) == CreditRange(1, None)
    assert learner.price(TAGS, FrameRange(0, 0)) == CreditRange(0, 0)


def test_the_table_sharpens_what_is_expected():
    """Where the table agrees with all charges the expectation is exact; where it does not, charges alone count."""
    learner = PriceLearner(PRIOR)
    learner.observe(Charge(TAGS, exactly(10), 2))
    assert learner.price(TAGS, exactly(20)) == CreditRange(3, 4)
    assert learner.expected(TAGS, exactly(20)) == CreditRange(3, 3)
    learner = PriceLearner(PRIOR)
    learner.observe(Charge(TAGS, exactly(10), 7))
    assert learner.expected(TAGS, exactly(20)) == learner.price(TAGS, exactly(20)) == CreditRange(13, 14)


@given(SERVICES, st.lists(REQUEST, max_size=12), REQUEST)
def test_what_is_expected_is_in_the_range(service, requests, question):
    """The expectation is never outside of what charges allow."""
    learner = PriceLearner(PRIOR)
    for kind, count in requests:
        learner.observe(Charge(kind, exactly(count), service.charge(kind, count)))
    wide, narrow = learner.price(question[0], exactly(question[1])), learner.expected(question[0], exactly(question[1]))
    assert wide.low <= narrow.low
    assert wide.high is None or (narrow.high is not None and narrow.high <= wide.high)


def test_drift_is_seen_and_ranges_get_wide():
    """A charge that contradicts the learned prices is reported as a price change, and learning starts again."""
    learner = PriceLearner(PRIOR)
    for _ in range(3):
        learner.observe(Charge(TAGS, exactly(10), 2))
        learner.observe(Charge(FACES, exactly(10), 5))
    charge = Charge(TAGS, exactly(10), 1)
    assert learner.observe(charge) == PriceChange(charge, CreditRange(2, 2))
    assert learner.changes == [PriceChange(charge, CreditRange(2, 2))]
    assert learner.price(TAGS, exactly(10)) == CreditRange(1, 2)
    assert not learner.knows(FACES)
    assert learner.price(FACES, exactly(10)) == CreditRange(0, 10)
    for _ in range(AGREEING_AFTER_CHANGE):
        assert learner.observe(charge) is None
    assert learner.price(TAGS, exactly(10)) == CreditRange(1, 1)


@given(st.lists(SERVICES, min_size=1, max_size=25), COUNTS)
def test_prices_that_go_up_and_down_stay_held(moving, count):
    """Until charges have agreed for a while after a change, the hold covers the most that was charged before it too."""
    learner, most, agreeing = PriceLearner(PRIOR), 0, 0
    for service in moving:
        paid = service.charge(TAGS, count)
        agreeing = 1 if learner.observe(Charge(TAGS, exactly(count), paid)) else agreeing + 1
        most = paid if agreeing >= AGREEING_AFTER_CHANGE else max(most, paid)
        assert learner.price(TAGS, exactly(count)).high >= most


def test_a_charge_that_fits_no_price_is_drift_and_teaches_nothing():
    """Credits for no picture at all contradict every price."""
    learner = PriceLearner(PRIOR)
    assert learner.observe(Charge(TAGS, exactly(0), 3)) is not None
    assert not learner.knows(TAGS)
    assert learner.observe(Charge(TAGS, FrameRange(0, 5), 0)) is None
    assert learner.observe(Charge(TAGS, exactly(2), 0)) is None
    assert learner.price(TAGS, FrameRange(1, 100)) == CreditRange(0, 0)


@given(st.integers(1, 5000), st.integers(1, 40), st.sampled_from(Rounding))
def test_the_cheapest_batch_is_the_cheapest(milli, most, rounding):
    """No other size up to the limit costs less for each image, and no smaller one as little."""
    best = cheapest_batch(milli, most, rounding)
    cost = request_price(milli, (best,), rounding)
    for count in range(1, most + 1):
        other = request_price(milli, (count,), rounding)
        assert other * best >= cost * count
        assert count >= best or other * best > cost * count


def test_batches_that_fill_whole_credits():
    """At 0.15 an image 20 images fill three credits, where one alone takes a whole one."""
    assert cheapest_batch(150, 20, Rounding.REQUEST) == 20
    assert cheapest_batch(150, 19, Rounding.REQUEST) == 13
    assert whole_credits(13 * 150) == 2
    assert cheapest_batch(150, 20, Rounding.IMAGE) == 1
