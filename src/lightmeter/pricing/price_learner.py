"""Learn a service's prices and where it rounds up from the charges of its answers.

The service rounds up either each picture or each request. Under each of these roundings, a charge bounds the
millicredits that one picture can cost. The learner keeps bounds for both, until a charge contradicts one of them. All
numbers are whole, so the true price is never outside the bounds, and a hold at the upper bound is never below the
charge. A charge that neither rounding explains is a price drift: then learning starts again from that charge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isqrt
from typing import Final

from lightmeter.pricing.estimate import CreditRange, FrameRange
from lightmeter.pricing.rates import MILLICREDITS, RateTable, Rounding, request_price, whole_credits

AGREEING_AFTER_DRIFT: Final = 8
"""Charges in a row that must agree after a drift before the prices from before it are forgotten.

A service that changes its prices back and forth would otherwise charge more than is held.
"""


@dataclass(frozen=True, slots=True)
class PriceKey:
    """The parts of a request that decide the price of a picture.

    Attributes:
        pairs: The active (back end, feature) pairs.
        prompt_blocks: How many times the price of a description is charged: once for each block of the prompt.
    """

    pairs: frozenset[tuple[str, str]]
    prompt_blocks: int = 1

    def prior_milli(self, rates: RateTable) -> int | None:
        """Return the millicredits of one picture by a price table; None if the table lacks one of the pairs."""
        prices = [(feature, rates.rates.get(backend, {}).get(feature)) for backend, feature in self.pairs]
        if any(price is None for _, price in prices):
            return None
        return sum((price or 0) * (self.prompt_blocks if feature == "descriptions" else 1) for feature, price in prices)


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge of one answer without errors; with an error, it would be unknown which back ends were charged.

    Attributes:
        price_key: The parts of the request that decide its price.
        frames: Number of pictures of all assets together; a range if the answer does not tell it.
        paid: Credits charged.
    """

    price_key: PriceKey
    frames: FrameRange
    paid: int


@dataclass(frozen=True, slots=True)
class PriceDrift:
    """A charge that contradicts what was learned from earlier charges.

    Attributes:
        charge: The charge.
        expected: The range that the charge was expected to be in.
    """

    charge: Charge
    expected: CreditRange


@dataclass(frozen=True, slots=True)
class _PriceBounds:
    """Bounds on the millicredits of one picture, both inclusive; `high` is None if unbounded."""

    low: int = 0
    high: int | None = None

    def intersection(self, other: _PriceBounds) -> _PriceBounds | None:
        """Return the prices that are within both bounds; None if there is no such price."""
        highs = [high for high in (self.high, other.high) if high is not None]
        low, high = max(self.low, other.low), min(highs, default=None)
        return None if high is not None and low > high else _PriceBounds(low, high)

    def __contains__(self, milli: int) -> bool:
        return self.low <= milli and (self.high is None or milli <= self.high)


def _bounds_from_charge(charge: Charge, rounding: Rounding) -> _PriceBounds | None:
    """Return the tightest bounds on the price of a picture under a rounding; None if the charge contradicts it."""
    low, high, paid = max(1, charge.frames.low), charge.frames.high, charge.paid
    if charge.frames.high == 0:
        return _PriceBounds() if paid == 0 else None
    if paid == 0:
        return _PriceBounds(0, None if charge.frames.low == 0 else 0)
    if rounding is Rounding.REQUEST:
        least = 1 if high is None else (paid - 1) * MILLICREDITS // high + 1
        most = paid * MILLICREDITS // low
        return _PriceBounds(least, most) if least <= most else None
    # Each picture costs the same whole number of credits: a divisor of `paid` that leaves a possible picture count.
    whole = [credits_ for credits_ in _divisors(paid) if low <= paid // credits_ <= (high or paid)]
    return _PriceBounds((whole[0] - 1) * MILLICREDITS + 1, whole[-1] * MILLICREDITS) if whole else None


def _divisors(number: int) -> list[int]:
    """Return all divisors in ascending order."""
    small = [one for one in range(1, isqrt(number) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


@dataclass(slots=True)
class _LearnedPrice:
    """What charges have shown about the price of one price key.

    Attributes:
        bounds: Bounds under each rounding; None if a charge contradicts that rounding.
        agreeing: Number of charges since the last drift; all agree.
        before_drift_milli: Highest price in millicredits from before a drift, as long as it is remembered.
    """

    bounds: dict[Rounding, _PriceBounds | None]
    agreeing: int = 0
    before_drift_milli: int = 0


@dataclass(slots=True)
class PriceLearner:
    """Prices of a service, learned from its charges. The same charges in the same order give the same state.

    Attributes:
        prior: The price table to start from.
        roundings: The roundings that explain every charge since the last drift; never empty.
        drifts: All drifts, oldest first.
    """

    prior: RateTable
    roundings: tuple[Rounding, ...] = tuple(Rounding)
    drifts: list[PriceDrift] = field(default_factory=list)
    _learned: dict[PriceKey, _LearnedPrice] = field(default_factory=dict)

    def knows(self, key: PriceKey) -> bool:
        """Whether a charge with this key was observed since the last drift."""
        return key in self._learned and self._learned[key].agreeing > 0

    @property
    def rounding(self) -> Rounding | None:
        """Where the service rounds up, as far as charges alone prove it; None until they do.

        They can prove only rounding by request: rounding by image looks like prices in whole credits.
        """
        return self.roundings[0] if len(self.roundings) == 1 else None

    @property
    def likely_rounding(self) -> Rounding | None:
        """Where the service rounds up if the price table is right; None if both roundings are possible, or neither."""
        seen = [(key.prior_milli(self.prior), known) for key, known in self._learned.items() if known.agreeing]
        fitting = [
            one
            for one in self.roundings
            if all(prior is None or prior in (known.bounds[one] or _PriceBounds()) for prior, known in seen)
        ]
        return self.rounding or (fitting[0] if len(fitting) == 1 else None)

    def observe(self, charge: Charge) -> PriceDrift | None:
        """Learn from a charge; return a `PriceDrift` if it contradicts earlier charges."""
        known = self._learned.setdefault(charge.price_key, _LearnedPrice({one: _PriceBounds() for one in Rounding}))
        narrowed = {one: _narrowed(known.bounds[one], _bounds_from_charge(charge, one)) for one in self.roundings}
        left = tuple(one for one in self.roundings if narrowed[one] is not None)
        if not left:
            return self._drifted(charge)
        known.bounds.update(narrowed)
        known.agreeing += 1
        if known.agreeing >= AGREEING_AFTER_DRIFT:
            known.before_drift_milli = 0
        self.roundings = left
        return None

    def price(self, key: PriceKey, frames: FrameRange) -> CreditRange:
        """Return what one request costs: by charges alone if there are any with this key, else by the price table.

        Args:
            key: The parts of the request that decide its price.
            frames: Number of pictures of all its assets together.

        Returns:
            The smallest range that is right under every remaining rounding; its upper end is the credits to hold. The
            upper end is None if the number of pictures has no bound, or if neither a charge nor the table has a price
            for the key.
        """
        bounds = [(one, self._bounds(key, one)) for one in self.roundings]
        return _union(_priced(milli, frames, one) for one, milli in bounds)

    def expected(self, key: PriceKey, frames: FrameRange) -> CreditRange:
        """Return what one request costs if the price table is right, or `price` if charges contradict the table.

        The range is never wider than that of `price`, and exact once the number of pictures and the rounding are known.
        Do not use it as a hold, because the table may be wrong.
        """
        prior = key.prior_milli(self.prior)
        bounds = [(one, self._bounds(key, one)) for one in self.roundings]
        agreeing = [(one, _PriceBounds(prior, prior)) for one, milli in bounds if prior is not None and prior in milli]
        return _union(_priced(milli, frames, one) for one, milli in agreeing or bounds)

    def _bounds(self, key: PriceKey, rounding: Rounding) -> _PriceBounds:
        known = self._learned.get(key)
        if known is not None and known.agreeing:
            milli = known.bounds[rounding] or _PriceBounds()
            if milli.high is not None and known.before_drift_milli:
                return _PriceBounds(milli.low, max(milli.high, known.before_drift_milli))
            return milli
        prior, before = key.prior_milli(self.prior), known.before_drift_milli if known else 0
        if self.drifts:  # prices changed: twice the table or the highest past price is a guess with room to spare
            return _PriceBounds(0, None if prior is None else 2 * max(prior, before))
        return _PriceBounds() if prior is None else _PriceBounds(prior, prior)

    def _drifted(self, charge: Charge) -> PriceDrift:
        """Forget everything learned except the highest price of each key, learn from this charge, return the drift."""
        drift = PriceDrift(charge, self.price(charge.price_key, charge.frames))
        self.drifts.append(drift)
        for known in self._learned.values():
            highs = [milli.high for milli in known.bounds.values() if milli is not None and milli.high is not None]
            known.before_drift_milli = max([known.before_drift_milli, *highs])
            known.bounds, known.agreeing = {one: _PriceBounds() for one in Rounding}, 0
        self.roundings = tuple(Rounding)
        bounds = {one: _bounds_from_charge(charge, one) for one in Rounding}
        left = tuple(one for one in Rounding if bounds[one] is not None)
        if left:  # a charge that no price explains teaches nothing
            known = self._learned[charge.price_key]
            known.bounds.update(bounds)
            known.agreeing, self.roundings = 1, left
        return drift


def _narrowed(known: _PriceBounds | None, other: _PriceBounds | None) -> _PriceBounds | None:
    return None if known is None or other is None else known.intersection(other)


def _priced(milli: _PriceBounds, frames: FrameRange, rounding: Rounding) -> CreditRange:
    low = request_price(milli.low, (frames.low,), rounding)
    if frames.high == 0 or milli.high == 0:
        return CreditRange(0, 0)
    if frames.high is None or milli.high is None:
        return CreditRange(low, None)
    return CreditRange(low, request_price(milli.high, (frames.high,), rounding))


def _union(ranges: Iterable[CreditRange]) -> CreditRange:
    all_ = list(ranges)
    highs = [one.high for one in all_]
    high = None if None in highs else max(high or 0 for high in highs)
    return CreditRange(min(one.low for one in all_), high)


def cheapest_batch(per_image_milli: int, most: int, rounding: Rounding) -> int:
    """Return the number of images per request with the lowest price per image; of equal prices, the smallest number.

    If the service rounds up each request, requests whose price is close to whole credits are cheapest. If it rounds up
    each image, or the price is whole credits, one image per request is as cheap as any number.

    Args:
        per_image_milli: Millicredits for one image.
        most: Most images in one request.
        rounding: Where the service rounds up.
    """
    if rounding is Rounding.IMAGE:
        return 1
    best = 1
    for count in range(2, most + 1):
        if whole_credits(count * per_image_milli) * best < whole_credits(best * per_image_milli) * count:
            best = count
    return best
