"""Learn a service's prices and where it rounds up from the charges of its answers.

Each charge bounds the millicredits that one picture can cost, in a way that depends on where the service rounds. Both
roundings are kept, each with its bounds, until a charge contradicts one of them. All numbers are whole: the true price
is always inside the bounds as long as the service uses one of the two roundings, so a hold at the upper end is never
below the charge. A charge that neither rounding explains is a price drift: learning starts again from that charge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isqrt
from typing import Final

from lightmeter.pricing.estimate import CreditRange, FrameRange
from lightmeter.pricing.rates import MILLICREDITS, RateTable, Rounding, request_price, whole_credits

__all__ = ["AGREEING_AFTER_DRIFT", "Charge", "PriceDrift", "PriceKey", "PriceLearner", "cheapest_batch"]

AGREEING_AFTER_DRIFT: Final = 8
"""Charges in a row that must agree after a drift before the prices from before it are forgotten.

A service that changes its prices back and forth would otherwise charge more than is held.
"""


@dataclass(frozen=True, slots=True)
class PriceKey:
    """The parts of a request that decide the price of a picture.

    Attributes:
        pairs: The active (back end, feature) pairs.
        prompt_blocks: How often descriptions are charged: 1, and 1 more for each further block of a long prompt.
    """

    pairs: frozenset[tuple[str, str]]
    prompt_blocks: int = 1

    def prior_milli(self, rates: RateTable) -> int | None:
        """Return the millicredits of one picture by a price table; None if it lacks a price of one of the pairs."""
        prices = [(feature, rates.rates.get(backend, {}).get(feature)) for backend, feature in self.pairs]
        if any(price is None for _, price in prices):
            return None
        return sum((price or 0) * (self.prompt_blocks if feature == "descriptions" else 1) for feature, price in prices)


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge of one answer without errors: what a service charges for a failed back end is not known.

    Attributes:
        price_key: What decides its price.
        frames: Pictures of all assets together, as a range if the answer does not say.
        paid: Credits charged.
    """

    price_key: PriceKey
    frames: FrameRange
    paid: int


@dataclass(frozen=True, slots=True)
class PriceDrift:
    """A charge that contradicts what was learned.

    Attributes:
        charge: The charge.
        expected: The range in which it should have been.
    """

    charge: Charge
    expected: CreditRange


@dataclass(frozen=True, slots=True)
class _PriceBounds:
    """Bounds on the millicredits of one picture, both included; `high` None: no upper bound is known."""

    low: int = 0
    high: int | None = None

    def intersection(self, other: _PriceBounds) -> _PriceBounds | None:
        """Return the prices within both bounds; None if there are none."""
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
    """What is known of one price key.

    Attributes:
        bounds: Bounds under each rounding; None: contradicted.
        agreeing: Charges in a row that agreed since the last drift.
        before_drift_milli: Highest price from before a drift that is not forgotten yet, in millicredits.
    """

    bounds: dict[Rounding, _PriceBounds | None]
    agreeing: int = 0
    before_drift_milli: int = 0


@dataclass(slots=True)
class PriceLearner:
    """Prices of a service as learned so far. Replaying the charges of a journal gives the same state.

    Attributes:
        prior: The price table, used until a charge contradicts it.
        roundings: The roundings that explain every charge since the last drift; never empty.
        drifts: All drifts, oldest first.
    """

    prior: RateTable
    roundings: tuple[Rounding, ...] = tuple(Rounding)
    drifts: list[PriceDrift] = field(default_factory=list)
    _learned: dict[PriceKey, _LearnedPrice] = field(default_factory=dict)

    def knows(self, key: PriceKey) -> bool:
        """Whether a charge with this key came since the last drift: if not, probe with one request at a time."""
        return key in self._learned and self._learned[key].agreeing > 0

    @property
    def rounding(self) -> Rounding | None:
        """Where the service rounds up; None until charges decide it.

        Charges alone can only prove rounding by request: rounding by image looks like prices in whole credits.
        """
        return self.roundings[0] if len(self.roundings) == 1 else None

    @property
    def likely_rounding(self) -> Rounding | None:
        """Where the service rounds up if the price table is right; None if both explain the charges, or neither."""
        seen = [(key.prior_milli(self.prior), known) for key, known in self._learned.items() if known.agreeing]
        fitting = [
            one
            for one in self.roundings
            if all(prior is None or prior in (known.bounds[one] or _PriceBounds()) for prior, known in seen)
        ]
        return self.rounding or (fitting[0] if len(fitting) == 1 else None)

    def observe(self, charge: Charge) -> PriceDrift | None:
        """Learn from a charge, and return the drift if it contradicts what was learned."""
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
        """Return what one request costs: by charges alone if there are any, else by the price table.

        Args:
            key: What decides its price.
            frames: Pictures of all its assets together.

        Returns:
            The smallest range that holds under every remaining rounding. Hold its upper end. It is None if the number
            of pictures has no bound, or if neither charges nor the table price the key.
        """
        bounds = [(one, self._bounds(key, one)) for one in self.roundings]
        return _union(_priced(milli, frames, one) for one, milli in bounds)

    def expected(self, key: PriceKey, frames: FrameRange) -> CreditRange:
        """Return what one request costs if the price table is right; `price` if charges contradict the table.

        It is never wider than `price`, and exact for a known number of pictures once the rounding is known. Do not
        hold it: the table may be wrong.
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
        """Forget what was learned, except the highest price of each key, and learn from this charge."""
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
    """Return the number of images in a request that costs least for each image; of equal ones the smallest.

    If the service rounds each request up, requests that fill whole credits are cheapest. If it rounds each image, or
    the price is whole credits, one image is as cheap as any number.

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
