"""Learn a service's prices, and whether it rounds up each picture or each request, from the charges of its answers.

For each of these two roundings, a charge limits the millicredits that one picture can cost. The learner stores these
bounds for both roundings, until a charge contradicts one of the roundings. The bounds are whole numbers, and the true
price is never outside them. If a charge contradicts both roundings, the prices have changed: then learning starts again
from that charge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Final

from lightmeter.pricing.estimate import CreditRange, FrameRange
from lightmeter.pricing.rates import MILLICREDITS, Rounding, request_price, whole_credits

AGREEING_AFTER_CHANGE: Final = 8
"""Number of consecutive charges that must agree after a price change before the earlier prices are forgotten.

Without the earlier prices, a service that changes its prices back and forth could charge more than is reserved.
"""


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge of one answer that shows a price.

    Answers with errors do not tell which back ends were charged. They are used only if the charge is higher than
    expected: then the price is at least that much.

    Attributes:
        kind: What the request holds, such as `image` or `video`: the price of a picture may depend on it.
        frames: Number of images and video frames of all assets together; a range if the answer does not tell it.
        paid: Credits charged.
    """

    kind: str
    frames: FrameRange
    paid: int


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A charge (`charge`) that contradicts the learned prices, and the credits that they predict (`expected`)."""

    charge: Charge
    expected: CreditRange


@dataclass(frozen=True, slots=True)
class _PriceBounds:
    """Bounds on the price of one picture in millicredits, both inclusive; `high` is None if there is no upper bound."""

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
    """Return the bounds that one charge sets on the price of a picture; None if no price can explain the charge.

    `rounding` says whether the service rounds up each picture or each request.
    """
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
    small = [one for one in range(1, isqrt(paid) + 1) if paid % one == 0]
    divisors = sorted({*small, *(paid // one for one in small)})
    whole = [credits_ for credits_ in divisors if low <= paid // credits_ <= (high or paid)]
    return _PriceBounds((whole[0] - 1) * MILLICREDITS + 1, whole[-1] * MILLICREDITS) if whole else None


@dataclass(slots=True)
class _LearnedPrice:
    """What charges have shown about the price of a picture in requests of one kind, such as requests with videos.

    Attributes:
        bounds: What the service may round up (`Rounding`) → bounds on the price in that case; None if a charge
            contradicts that rounding.
        agreeing: Number of charges since the last price change; all agree with `bounds`.
        earlier_milli: Highest price in millicredits from the time before a price change; 0 if none is stored.
    """

    bounds: dict[Rounding, _PriceBounds | None]
    agreeing: int = 0
    earlier_milli: int = 0


@dataclass(slots=True)
class PriceLearner:
    """Learns a service's prices from its charges. The same charges in the same order give the same prices.

    Prices are learned for each kind of request, such as `image` or `video`. The service charges whole credits: it
    rounds up either the price of each picture or the price of each request (`Rounding`). Some charges are possible only
    if it rounds each request.

    Attributes:
        prior: Kind of request → millicredits for one picture in the price table. Used until a charge shows the price.
        roundings: The roundings (of each picture, of each request) that explain every charge since the last price
            change; one or both.
        changes: The charges that contradicted the prices learned before, oldest first.
    """

    prior: Mapping[str, int]
    roundings: tuple[Rounding, ...] = tuple(Rounding)
    changes: list[PriceChange] = field(default_factory=list)
    _learned: dict[str, _LearnedPrice] = field(default_factory=dict)

    def knows(self, kind: str) -> bool:
        """Whether a charge of this kind of request (such as `image`) was observed since the last price change."""
        return kind in self._learned and self._learned[kind].agreeing > 0

    @property
    def rounding(self) -> Rounding | None:
        """What the service rounds up, each picture or each request; None while `roundings` holds both.

        Charges never prove that the service rounds up each picture, because such charges also fit rounding of each
        request. So the result is `Rounding.IMAGE` only if the learner was created with this rounding alone.
        """
        return self.roundings[0] if len(self.roundings) == 1 else None

    @property
    def likely_rounding(self) -> Rounding | None:
        """What the service rounds up, each picture or each request, if the price table (`prior`) is right.

        None if the charges and the table fit both roundings, or neither of them.
        """
        observed = [(self.prior.get(kind), known) for kind, known in self._learned.items() if known.agreeing]
        fitting = [
            one
            for one in self.roundings
            if all(prior is None or prior in (known.bounds[one] or _PriceBounds()) for prior, known in observed)
        ]
        return self.rounding or (fitting[0] if len(fitting) == 1 else None)

    def observe(self, charge: Charge) -> PriceChange | None:
        """Learn from `charge`, and return None.

        If it contradicts earlier charges, start again with this charge, and return a `PriceChange`.
        """
        known = self._learned.setdefault(charge.kind, _LearnedPrice({one: _PriceBounds() for one in Rounding}))
        narrowed = {one: _narrowed(known.bounds[one], _bounds_from_charge(charge, one)) for one in self.roundings}
        left = tuple(one for one in self.roundings if narrowed[one] is not None)
        if not left:
            return self._start_again(charge)
        known.bounds.update(narrowed)
        known.agreeing += 1
        if known.agreeing >= AGREEING_AFTER_CHANGE:
            known.earlier_milli = 0
        self.roundings = left
        return None

    def price(self, kind: str, frames: FrameRange) -> CreditRange:
        """Return the credits that a request of `kind` (such as `image` or `video`) with `frames` pictures can cost.

        How the price of one picture is bounded depends on the charges observed so far. A price change, here, is a
        charge of any kind that contradicted the charges before it.

        - No charge of this kind and no price change: the price in the table, `prior`.
        - Charges of this kind since the start or the last price change: the range that fits all of them. After a
          change, until 8 charges agree, the upper bound is at least the highest price of this kind before the change.
        - A price change, and no charge of this kind since: from 0 to twice the highest known price, which is that in
          `prior` or the highest that charges of this kind had shown.

        The upper end is None if `frames` has no upper bound, if the charges leave the price without one (a request that
        cost nothing may have had no pictures), or if `prior` lacks the kind and there is no charge.
        """
        bounds = [(one, self._bounds(kind, one)) for one in self.roundings]
        return _union(_priced(milli, frames, one) for one, milli in bounds)

    def expected(self, kind: str, frames: FrameRange) -> CreditRange:
        """Return the credits that a request of `kind` (such as `image`) costs if the price table, `prior`, is right.

        `frames` is the number of pictures in the request. If charges contradict the table, return what `price` returns.
        Do not reserve credits by this range: it is too narrow if the table is wrong.
        """
        prior = self.prior.get(kind)
        bounds = [(one, self._bounds(kind, one)) for one in self.roundings]
        agreeing = [(one, _PriceBounds(prior, prior)) for one, milli in bounds if prior is not None and prior in milli]
        return _union(_priced(milli, frames, one) for one, milli in agreeing or bounds)

    def _bounds(self, kind: str, rounding: Rounding) -> _PriceBounds:
        known = self._learned.get(kind)
        if known is not None and known.agreeing:
            milli = known.bounds[rounding] or _PriceBounds()
            if milli.high is not None and known.earlier_milli:
                return _PriceBounds(milli.low, max(milli.high, known.earlier_milli))
            return milli
        prior, before = self.prior.get(kind), known.earlier_milli if known else 0
        if self.changes:  # twice the table or the highest past price is a guess with room to spare
            return _PriceBounds(0, None if prior is None else 2 * max(prior, before))
        return _PriceBounds() if prior is None else _PriceBounds(prior, prior)

    def _start_again(self, charge: Charge) -> PriceChange:
        """Forget the learned prices, which `charge` contradicts, and learn from `charge`; return the price change.

        For each kind of request (such as `image`), keep only the highest earlier price, for upper bounds.
        """
        change = PriceChange(charge, self.price(charge.kind, charge.frames))
        self.changes.append(change)
        for known in self._learned.values():
            highs = [milli.high for milli in known.bounds.values() if milli is not None and milli.high is not None]
            known.earlier_milli = max([known.earlier_milli, *highs])
            known.bounds, known.agreeing = {one: _PriceBounds() for one in Rounding}, 0
        self.roundings = tuple(Rounding)
        bounds = {one: _bounds_from_charge(charge, one) for one in Rounding}
        left = tuple(one for one in Rounding if bounds[one] is not None)
        if left:  # a charge that no price explains teaches nothing
            known = self._learned[charge.kind]
            known.bounds.update(bounds)
            known.agreeing, self.roundings = 1, left
        return change


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
    lows, highs = zip(*((one.low, one.high) for one in ranges), strict=True)
    return CreditRange(min(lows), None if None in highs else max(highs))


def cheapest_batch(per_image_milli: int, most: int, rounding: Rounding) -> int:
    """Return the number of images per request that has the lowest price per image; if several have, the smallest.

    Args:
        per_image_milli: Millicredits for one image.
        most: Maximum number of images in one request.
        rounding: Whether the service rounds up each picture or each request.
    """
    if rounding is Rounding.IMAGE:
        return 1
    best = 1
    for count in range(2, most + 1):
        if whole_credits(count * per_image_milli) * best < whole_credits(best * per_image_milli) * count:
            best = count
    return best
