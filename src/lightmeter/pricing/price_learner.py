"""What a service really charges, learned from what it charged: prices, and where it rounds up.

Each charge bounds the millicredits that one picture can cost, in a way that depends on where the service rounds. Both
ways are kept, each with its bounds, until a charge contradicts one of them. Whole numbers only: the truth is always
inside the bounds as long as one of the two ways is the service's, so the upper end is never below a charge to come.
A charge that neither way explains is drift: what was learned is no longer true, and is learned anew from there.
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
"""Charges in a row that must agree after a drift before what was charged ahead of it is forgotten."""


@dataclass(frozen=True, slots=True)
class PriceKey:
    """What decides the price of a picture.

    Attributes:
        pairs: The active (back end, feature) pairs.
        prompt_blocks: How often descriptions are charged: 1, and 1 more for each further block of a long prompt.
    """

    pairs: frozenset[tuple[str, str]]
    prompt_blocks: int = 1

    def prior_milli(self, rates: RateTable) -> int | None:
        """Millicredits of one picture by a price table, None if it does not price all pairs."""
        prices = [(feature, rates.rates.get(backend, {}).get(feature)) for backend, feature in self.pairs]
        if any(price is None for _, price in prices):
            return None
        return sum((price or 0) * (self.prompt_blocks if feature == "descriptions" else 1) for feature, price in prices)


@dataclass(frozen=True, slots=True)
class Charge:
    """One charge: of an answer without errors, because what a service takes for a failed back end is not known.

    Attributes:
        kind: What was asked for.
        frames: Pictures of all assets together, as a range where an answer does not say.
        paid: Credits charged.
    """

    kind: PriceKey
    frames: FrameRange
    paid: int


@dataclass(frozen=True, slots=True)
class PriceDrift:
    """A charge that contradicts what was learned.

    Attributes:
        charge: It.
        expected: What it should have been.
    """

    charge: Charge
    expected: CreditRange


@dataclass(frozen=True, slots=True)
class _Milli:
    """Bounds on the millicredits of one picture, both included; `high` None while there is none."""

    low: int = 0
    high: int | None = None

    def both(self, other: _Milli) -> _Milli | None:
        """What is in both, None if nothing is."""
        highs = [high for high in (self.high, other.high) if high is not None]
        low, high = max(self.low, other.low), min(highs, default=None)
        return None if high is not None and low > high else _Milli(low, high)

    def __contains__(self, milli: int) -> bool:
        return self.low <= milli and (self.high is None or milli <= self.high)


def _explained(charge: Charge, rounding: Rounding) -> _Milli | None:
    """What a picture can cost if the service rounds this way: the smallest bounds around it, None if it cannot be."""
    low, high, paid = max(1, charge.frames.low), charge.frames.high, charge.paid
    if charge.frames.high == 0:
        return _Milli() if paid == 0 else None
    if paid == 0:
        return _Milli(0, None if charge.frames.low == 0 else 0)
    if rounding is Rounding.REQUEST:
        least = 1 if high is None else (paid - 1) * MILLICREDITS // high + 1
        most = paid * MILLICREDITS // low
        return _Milli(least, most) if least <= most else None
    # so many pictures, each at a whole number of credits: `paid` divided by one of its divisors
    whole = [credits_ for credits_ in _divisors(paid) if low <= paid // credits_ <= (high or paid)]
    return _Milli((whole[0] - 1) * MILLICREDITS + 1, whole[-1] * MILLICREDITS) if whole else None


def _divisors(number: int) -> list[int]:
    """All, in order."""
    small = [one for one in range(1, isqrt(number) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


@dataclass(slots=True)
class _Learned:
    """Bounds of one kind under each way of rounding, and the most it ever cost while a drift is not forgotten."""

    bounds: dict[Rounding, _Milli | None]
    agreeing: int = 0
    before_drift_milli: int = 0


@dataclass(slots=True)
class PriceLearner:
    """What is known of a service's prices. Replay the charges of a journal to have it again.

    Attributes:
        prior: The price table believed until a charge says otherwise.
        roundings: The ways of rounding that still explain every charge since the last drift; never empty.
        drifts: Every drift, oldest first.
    """

    prior: RateTable
    roundings: tuple[Rounding, ...] = tuple(Rounding)
    drifts: list[PriceDrift] = field(default_factory=list)
    _kinds: dict[PriceKey, _Learned] = field(default_factory=dict)

    def knows(self, kind: PriceKey) -> bool:
        """Whether a charge of this kind was seen since the last drift: if not, probe it, one request at a time."""
        return kind in self._kinds and self._kinds[kind].agreeing > 0

    @property
    def rounding(self) -> Rounding | None:
        """Where the service rounds up, once charges have told.

        Charges alone can only tell that it is by request: rounding by image looks like prices in whole credits.
        """
        return self.roundings[0] if len(self.roundings) == 1 else None

    @property
    def likely_rounding(self) -> Rounding | None:
        """Where the service rounds up if the price table is right: the only way that explains all charges with it."""
        seen = [(kind.prior_milli(self.prior), known) for kind, known in self._kinds.items() if known.agreeing]
        fitting = [
            one
            for one in self.roundings
            if all(prior is None or prior in (known.bounds[one] or _Milli()) for prior, known in seen)
        ]
        return self.rounding or (fitting[0] if len(fitting) == 1 else None)

    def observe(self, charge: Charge) -> PriceDrift | None:
        """Learn from a charge; returns the drift if it contradicts what was learned."""
        known = self._kinds.setdefault(charge.kind, _Learned({one: _Milli() for one in Rounding}))
        narrowed = {one: _narrowed(known.bounds[one], _explained(charge, one)) for one in self.roundings}
        left = tuple(one for one in self.roundings if narrowed[one] is not None)
        if not left:
            return self._drifted(charge)
        known.bounds.update(narrowed)
        known.agreeing += 1
        if known.agreeing >= AGREEING_AFTER_DRIFT:
            known.before_drift_milli = 0
        self.roundings = left
        return None

    def price(self, kind: PriceKey, frames: FrameRange) -> CreditRange:
        """What one request costs, by charges alone where there are any, else by the price table.

        Args:
            kind: What is asked for.
            frames: Pictures of all its assets together.

        Returns:
            The smallest range that holds under every way of rounding left. Its upper end is what to hold; it has no
            upper end for pictures without a bound, or for a kind that neither charges nor the table know.
        """
        bounds = [(one, self._bounds(kind, one)) for one in self.roundings]
        return _joined(_priced(milli, frames, one) for one, milli in bounds)

    def expected(self, kind: PriceKey, frames: FrameRange) -> CreditRange:
        """What one request costs if the price table is right, as long as no charge contradicts the table.

        Never wider than `price`, and exact for a known number of pictures once the rounding is known; not to be held.
        """
        prior = kind.prior_milli(self.prior)
        bounds = [(one, self._bounds(kind, one)) for one in self.roundings]
        agreeing = [(one, _Milli(prior, prior)) for one, milli in bounds if prior is not None and prior in milli]
        return _joined(_priced(milli, frames, one) for one, milli in agreeing or bounds)

    def _bounds(self, kind: PriceKey, rounding: Rounding) -> _Milli:
        known = self._kinds.get(kind)
        if known is not None and known.agreeing:
            milli = known.bounds[rounding] or _Milli()
            if milli.high is not None and known.before_drift_milli:
                return _Milli(milli.low, max(milli.high, known.before_drift_milli))
            return milli
        prior, before = kind.prior_milli(self.prior), known.before_drift_milli if known else 0
        if self.drifts:  # prices moved: the table and what was seen are the best there is, and no lower end
            return _Milli(0, None if prior is None else 2 * max(prior, before))
        return _Milli() if prior is None else _Milli(prior, prior)

    def _drifted(self, charge: Charge) -> PriceDrift:
        """Forget what was learned, except the most that each kind ever cost, and learn anew from this charge."""
        drift = PriceDrift(charge, self.price(charge.kind, charge.frames))
        self.drifts.append(drift)
        for known in self._kinds.values():
            highs = [milli.high for milli in known.bounds.values() if milli is not None and milli.high is not None]
            known.before_drift_milli = max([known.before_drift_milli, *highs])
            known.bounds, known.agreeing = {one: _Milli() for one in Rounding}, 0
        self.roundings = tuple(Rounding)
        alone = {one: _explained(charge, one) for one in Rounding}
        left = tuple(one for one in Rounding if alone[one] is not None)
        if left:  # one that fits no price at all teaches nothing
            known = self._kinds[charge.kind]
            known.bounds.update(alone)
            known.agreeing, self.roundings = 1, left
        return drift


def _narrowed(known: _Milli | None, said: _Milli | None) -> _Milli | None:
    return None if known is None or said is None else known.both(said)


def _priced(milli: _Milli, frames: FrameRange, rounding: Rounding) -> CreditRange:
    low = request_price(milli.low, (frames.low,), rounding)
    if frames.high == 0 or milli.high == 0:
        return CreditRange(0, 0)
    if frames.high is None or milli.high is None:
        return CreditRange(low, None)
    return CreditRange(low, request_price(milli.high, (frames.high,), rounding))


def _joined(ranges: Iterable[CreditRange]) -> CreditRange:
    all_ = list(ranges)
    highs = [one.high for one in all_]
    high = None if None in highs else max(high or 0 for high in highs)
    return CreditRange(min(one.low for one in all_), high)


def cheapest_batch(per_image_milli: int, most: int, rounding: Rounding) -> int:
    """Images in one request that cost least for each image: 1 to `most`, the fewest of those that cost the same.

    Where the service rounds each request up, requests that fill whole credits are cheapest; where it rounds each
    image, or a price is whole credits, one is as good as any.
    """
    if rounding is Rounding.IMAGE:
        return 1
    best = 1
    for count in range(2, most + 1):
        if whole_credits(count * per_image_milli) * best < whole_credits(best * per_image_milli) * count:
            best = count
    return best
