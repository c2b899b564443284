"""Prices of a run's requests, learned from their charges: how many credits to hold, and whether to probe first."""

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
"""Answers without a usable charge (such as partial ones) after which the price table is relied on without a probe.

More probes would keep a run of partial answers at one request at a time.
"""

_UNKNOWN: Final = "unknown"
_PRICE_KEYS: Final = {name: PriceKey(frozenset({("run", name)})) for name in ("image", "video", _UNKNOWN)}
"""Price keys by kind of asset. All requests of a run have the same options, so only the kind can change the price."""

MAX_RECENT_CHARGES: Final = 2000
"""Charges of earlier starts that a run learns from: more change the result no more, and would delay the start."""


def price_key_of(names: Sequence[str | None]) -> PriceKey:
    """Return the price key of a request with assets of these kinds: that of the kind if all agree, else unknown."""
    name = names[0] if len(set(names)) == 1 else None
    return _PRICE_KEYS.get(name or _UNKNOWN, _PRICE_KEYS[_UNKNOWN])


def learner_from_journal(db: sqlite.Connection, header: RunHeader, recent: int | None = None) -> PriceLearner:
    """Return a learner that has observed the charges of a run, with the planned price as its table.

    Args:
        db: The journal.
        header: The header of the run.
        recent: Observe only so many of the latest charges; None: all.
    """
    milli = header.price_per_image_milli
    prior = RateTable(date.fromisoformat(header.planned_at[:10]), {"run": dict.fromkeys(_PRICE_KEYS, milli)}, ())
    learner = PriceLearner(prior)
    for paid, low, high, *kinds in charged_frames(db, recent):
        learner.observe(Charge(price_key_of([kind or None for kind in kinds]), FrameRange(low, high), paid))
    return learner


class RequestPrices:
    """Prices of a run's requests, updated with each charge.

    Args:
        learner: The prices learned so far.
        trusted: The service charges by our own price table: nothing has to be probed.
        retry_milli: Millicredits for the retry of one picture, by the price table.
    """

    def __init__(self, learner: PriceLearner, *, trusted: bool, retry_milli: int = 0) -> None:
        self._retry_milli = retry_milli
        self._retries = 0
        self._max_retry_credits = 0
        self._learner = learner
        self._trusted = trusted
        self._seen: Counter[tuple[PriceKey, FrameRange, int]] = Counter()
        self._max_credits: dict[tuple[PriceKey, int], int] = {}
        self._unpriced: Counter[PriceKey] = Counter()

    @property
    def learner(self) -> PriceLearner:
        """The prices learned so far."""
        return self._learner

    def max_credits(self, rows: Sequence[PendingRow]) -> int:
        """Return the most that rows can cost as one request, in whole credits, 1 or more: the hold for it.

        A row without a frame limit counts as one picture: such rows are sent only if there is no budget.
        """
        if rows[0].retry is not None:
            return self._max_retry(rows[0])
        pictures = sum(max(1, row.frames_high or 1) for row in rows)
        key = price_key_of([row.kind for row in rows])
        if (key, pictures) not in self._max_credits:
            self._max_credits[key, pictures] = self._price(key, pictures)
        return self._max_credits[key, pictures]

    def _price(self, key: PriceKey, pictures: int) -> int:
        high = self._learner.price(key, FrameRange(0, pictures)).high
        if high is None:  # no charge with this key yet, but others have contradicted the table
            prior = self._learner.prior.rates["run"]["image"]
            high = pictures * max(1, -(-prior // 1000))
        if not self._learner.knows(key):  # assume that a video frame costs as much as an image
            others = [one for one in _PRICE_KEYS.values() if self._learner.knows(one)]
            highs = [self._learner.price(one, FrameRange(0, pictures)).high or 0 for one in others]
            high = max([high, *highs])
        return max(1, high)

    def _max_retry(self, row: PendingRow) -> int:
        """Return the price of a retry by the table, or more if charges have shown that the table is too low."""
        pictures = max(1, row.frames_high or 1)
        first = self.max_credits([replace(row, retry=None)])
        by_table = pictures * whole_credits(self._learner.prior.rates["run"]["image"])
        each = max(whole_credits(self._retry_milli), self._max_retry_credits)
        return max(1, pictures * each, first if first > by_table else 0)

    @property
    def retry_price_known(self) -> bool:
        """Whether a retry was answered: until then retries are sent one at a time."""
        return self._trusted or self._retries > 0

    def observe_retry(self, pictures: int | None, paid: int) -> None:
        """Record the charge of a retry. Retries are priced apart from first requests."""
        self._retries += 1
        self._max_retry_credits = max(self._max_retry_credits, -(-paid // max(1, pictures or 1)))

    @property
    def price_known(self) -> bool:
        """Whether a charge of this service was seen: until then one image at a time is sent."""
        seen = any(self._learner.knows(kind) for kind in _PRICE_KEYS.values())
        return self._trusted or seen or self.unpriced_answers >= MAX_PROBES

    @property
    def unpriced_answers(self) -> int:
        """Number of answers from whose charge no price can be learned."""
        return self._unpriced.total()

    @property
    def trusted(self) -> bool:
        """Whether the service charges by our own price table."""
        return self._trusted

    def observe_unpriced(self, names: Sequence[str | None]) -> None:
        """Record an answer from whose charge no price can be learned: it names no charge, or also an error."""
        self._unpriced[price_key_of(names)] += 1

    def observe(self, names: Sequence[str | None], frames: FrameRange, paid: int) -> str | None:
        """Learn from a charge, and return a sentence about it if it contradicts those before.

        Nothing is learned from a free answer: the next one may cost something.

        Args:
            names: Kinds of the assets of the request.
            frames: Pictures that were charged.
            paid: Credits charged.
        """
        if not paid:
            return None
        charge = (price_key_of(names), frames, paid)
        if self._seen[charge] >= AGREEING_AFTER_DRIFT:  # repeats teach nothing, and most charges of a run are repeats
            return None
        drift = self._learner.observe(Charge(*charge))
        self._max_credits.clear()
        if drift is not None:
            self._seen.clear()
        self._seen[charge] += 1
        return None if drift is None else f"{paid} credits were charged where {drift.expected} was expected."
