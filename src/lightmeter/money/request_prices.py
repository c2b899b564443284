"""What requests of a run cost, learned from what they were charged: what to hold, and when to go carefully."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from lightmeter import sqlite
from lightmeter.journal.charges import charged_frames
from lightmeter.journal.header import RunHeader
from lightmeter.journal.items import PendingRow
from lightmeter.pricing.estimate import FrameRange
from lightmeter.pricing.price_learner import AGREEING_AFTER_DRIFT, Charge, PriceKey, PriceLearner
from lightmeter.pricing.rates import RateTable, whole_credits

__all__ = ["MAX_PROBES", "MAX_RECENT_CHARGES", "RequestPrices", "learner_from_journal", "price_key_of"]

MAX_PROBES: Final = 5
"""Answers that tell no price, such as partial ones, before it is taken to be what the table says."""

_UNKNOWN: Final = "unknown"
_KINDS: Final = {name: PriceKey(frozenset({("run", name)})) for name in ("image", "video", _UNKNOWN)}
"""A run asks for the same of every asset, so what its price can depend on is whether it is a video."""

MAX_RECENT_CHARGES: Final = 2000
"""Charges that a run starts from: what they teach soon changes no more, and a long run should start at once."""


def price_key_of(names: Sequence[str | None]) -> PriceKey:
    """What a request with assets of these kinds is charged as: theirs if they agree, else unknown."""
    name = names[0] if len(set(names)) == 1 else None
    return _KINDS.get(name or _UNKNOWN, _KINDS[_UNKNOWN])


def learner_from_journal(db: sqlite.Connection, header: RunHeader, recent: int | None = None) -> PriceLearner:
    """What the charges of this run teach, starting from the price that it was planned with.

    `recent` looks at so many of the last ones alone; by default at all.
    """
    milli = header.price_per_image_milli
    prior = RateTable(date.fromisoformat(header.planned_at[:10]), {"run": dict.fromkeys(_KINDS, milli)}, ())
    learner = PriceLearner(prior)
    for paid, low, high, *kinds in charged_frames(db, recent):
        learner.observe(Charge(price_key_of([kind or None for kind in kinds]), FrameRange(low, high), paid))
    return learner


class RequestPrices:
    """Prices of a run while it goes.

    Args:
        learner: What is known so far.
        trusted: The service's prices are our own: nothing has to be probed.
        retry_milli: Millicredits of a picture that is asked about again, by the price table.
    """

    def __init__(self, learner: PriceLearner, *, trusted: bool, retry_milli: int = 0) -> None:
        self._retry_milli = retry_milli
        self._retries = 0
        self._dearest_retry = 0
        self._learner = learner
        self._trusted = trusted
        self._seen: Counter[tuple[PriceKey, FrameRange, int]] = Counter()
        self._most: dict[tuple[PriceKey, int], int] = {}
        self._told_nothing: Counter[PriceKey] = Counter()

    @property
    def learner(self) -> PriceLearner:
        """What is known so far."""
        return self._learner

    def most(self, rows: Sequence[PendingRow]) -> int:
        """Most that rows can cost as one request, in whole credits, 1 or more: what to hold for it.

        A row without a bound counts as one picture: such rows are sent only where no budget is to be kept.
        """
        if rows[0].retry is not None:
            return self._most_of_retry(rows[0])
        pictures = sum(max(1, row.frames_high or 1) for row in rows)
        kind = price_key_of([row.kind for row in rows])
        if (kind, pictures) not in self._most:
            self._most[kind, pictures] = self._price(kind, pictures)
        return self._most[kind, pictures]

    def _price(self, kind: PriceKey, pictures: int) -> int:
        high = self._learner.price(kind, FrameRange(0, pictures)).high
        if high is None:  # no charge of this kind yet, after others have shown that the table is wrong
            prior = self._learner.prior.rates["run"]["image"]
            high = pictures * max(1, -(-prior // 1000))
        if not self._learner.knows(kind):  # a frame of a video costs what an image costs, as far as is known
            others = [one for one in _KINDS.values() if self._learner.knows(one)]
            highs = [self._learner.price(one, FrameRange(0, pictures)).high or 0 for one in others]
            high = max([high, *highs])
        return max(1, high)

    def _most_of_retry(self, row: PendingRow) -> int:
        """By the price table, unless charges have shown that it is too low."""
        pictures = max(1, row.frames_high or 1)
        first = self.most([replace(row, retry=None)])
        by_table = pictures * whole_credits(self._learner.prior.rates["run"]["image"])
        each = max(whole_credits(self._retry_milli), self._dearest_retry)
        return max(1, pictures * each, first if first > by_table else 0)

    @property
    def retry_price_known(self) -> bool:
        """Whether a request that asks again was answered: if not, one at a time is sent."""
        return self._trusted or self._retries > 0

    def observe_retry(self, pictures: int | None, paid: int) -> None:
        """A request that asks again was answered, for so much; the price of first requests says nothing of it."""
        self._retries += 1
        self._dearest_retry = max(self._dearest_retry, -(-paid // max(1, pictures or 1)))

    @property
    def known(self) -> bool:
        """Whether a charge of this service was seen: if not, one image at a time is sent until there is one."""
        seen = any(self._learner.knows(kind) for kind in _KINDS.values())
        return self._trusted or seen or self.unpriced_answers >= MAX_PROBES

    @property
    def unpriced_answers(self) -> int:
        """How many answers have come whose charge says nothing of the price."""
        return self._told_nothing.total()

    @property
    def trusted(self) -> bool:
        """Whether the service's prices are our own."""
        return self._trusted

    def observe_unpriced(self, names: Sequence[str | None]) -> None:
        """An answer of this kind came whose charge says nothing of the price: it names none, or an error with it."""
        self._told_nothing[price_key_of(names)] += 1

    def observe(self, names: Sequence[str | None], frames: FrameRange, paid: int) -> str | None:
        """Learn from a charge; returns what is odd about it, as a sentence, if it contradicts those before.

        What was free teaches nothing: the next one may not be.
        """
        if not paid:
            return None
        charge = (price_key_of(names), frames, paid)
        if self._seen[charge] >= AGREEING_AFTER_DRIFT:  # the same again teaches nothing, and is most of a run
            return None
        drift = self._learner.observe(Charge(*charge))
        self._most.clear()
        if drift is not None:
            self._seen.clear()
        self._seen[charge] += 1
        return None if drift is None else f"{paid} credits were charged where {drift.expected} was expected."
