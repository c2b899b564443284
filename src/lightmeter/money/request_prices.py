"""Prices of a run's requests, learned from their charges.

They decide how many credits to reserve for a request, and whether to send single images first to learn the price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.header import EMBEDDED_KEY, RunHeader
from lightmeter.journal.queries.charges import charged_frames
from lightmeter.journal.queries.items import PendingRow
from lightmeter.pricing.estimate import FrameRange
from lightmeter.pricing.price_learner import AGREEING_AFTER_CHANGE, Charge, PriceLearner
from lightmeter.pricing.rates import Rounding, whole_credits

MAX_UNPRICED_ANSWERS: Final = 5
"""Answers that name no usable charge after which a run trusts the price table; until then it sends one at a time."""

_UNKNOWN: Final = "unknown"
_KINDS: Final = ("image", "video", _UNKNOWN)
"""Kinds of requests. All requests of a run have the same options, so only the kind of the assets changes the price."""

MAX_RECENT_CHARGES: Final = 2000
"""Charges of earlier starts that a run learns from. More would delay the start and hardly change the result."""


def price_key_of(kinds: Sequence[str | None]) -> str:
    """Return the kind of a request, by which prices differ: `image` or `video` if all its rows are, else `unknown`.

    `kinds` are the media types of its rows: image, video or None (unknown).
    """
    kind = kinds[0] if len(set(kinds)) == 1 else None
    return kind if kind in _KINDS else _UNKNOWN


def learner_from_journal(db: sqlite.Connection, header: RunHeader, recent: int | None = None) -> PriceLearner:
    """Return the prices of a run's requests as learned from their charges, starting from the planned price.

    The embedded service is known to round up each picture.

    Args:
        db: The journal of the run.
        header: The header of the run, with the planned price.
        recent: Number of the latest charges to learn from; None for all.
    """
    embedded = get_meta(db).get(EMBEDDED_KEY) == "1"
    roundings = (Rounding.IMAGE,) if embedded else tuple(Rounding)
    learner = PriceLearner(dict.fromkeys(_KINDS, header.price_per_image_milli), roundings)
    for paid, low, high, *kinds in charged_frames(db, recent):
        learner.observe(Charge(price_key_of([kind or None for kind in kinds]), FrameRange(low, high), paid))
    return learner


class RequestPrices:
    """Prices of a run's requests, updated with each charge.

    A *retry* repeats the user's question (`--ask`) about one image or video whose answer was not valid.

    Args:
        learner: The prices learned so far.
        trusted: Whether the service is known to charge by lightmeter's price table, so that no price has to be tested.
        retry_milli: Millicredits for the retry of one image or video frame, by the price table.
    """

    def __init__(self, learner: PriceLearner, *, trusted: bool, retry_milli: int) -> None:
        self.learner = learner
        self.trusted = trusted
        self._retry_milli = retry_milli
        self._retries = 0
        self._max_retry_credits = 0
        self._charge_counts: Counter[tuple[str, FrameRange, int]] = Counter()
        self._max_credits: dict[tuple[str, int], int] = {}
        self._unpriced: Counter[str] = Counter()

    def max_credits(self, rows: Sequence[PendingRow]) -> int:
        """Return the most credits, 1 or more, that a request with these manifest rows can cost, by the prices learned.

        A row without a frame limit counts as one image, because such rows are sent only if there is no budget.
        """
        if rows[0].retry is not None:
            return self._max_retry(rows[0])
        pictures = sum(max(1, row.frames_high or 1) for row in rows)
        key = price_key_of([row.kind for row in rows])
        if (key, pictures) not in self._max_credits:
            self._max_credits[key, pictures] = self._price(key, pictures)
        return self._max_credits[key, pictures]

    def _price(self, key: str, pictures: int) -> int:
        high = self.learner.price(key, FrameRange(0, pictures)).high
        if high is None:  # no charge with this key yet, but others have contradicted the table
            high = pictures * max(1, whole_credits(self.learner.prior["image"]))
        if not self.learner.knows(key):  # assume that a video frame costs as much as an image
            others = [one for one in _KINDS if self.learner.knows(one)]
            highs = [self.learner.price(one, FrameRange(0, pictures)).high or 0 for one in others]
            high = max([high, *highs])
        return max(1, high)

    def _max_retry(self, row: PendingRow) -> int:
        pictures = max(1, row.frames_high or 1)
        first = self.max_credits([replace(row, retry=None)])
        by_table = pictures * whole_credits(self.learner.prior["image"])
        each = max(whole_credits(self._retry_milli), self._max_retry_credits)
        return max(1, pictures * each, first if first > by_table else 0)

    @property
    def must_learn_retry_price(self) -> bool:
        """Whether retries (`--ask` after an invalid answer) must be sent one at a time, to learn their price."""
        return not self.trusted and self._retries == 0

    def observe_retry(self, pictures: int | None, paid: int) -> None:
        """Learn the price of retries (second requests, after an invalid answer to `--ask`) from the charge of a retry.

        `pictures` is the retry's number of images or video frames, None if unknown; `paid` is its charge in credits.
        """
        self._retries += 1
        self._max_retry_credits = max(self._max_retry_credits, -(-paid // max(1, pictures or 1)))

    @property
    def must_learn_price(self) -> bool:
        """Whether requests must be sent one at a time, to learn the price.

        False if the price is known, or if `MAX_UNPRICED_ANSWERS` answers did not show a price.
        """
        learned = any(self.learner.knows(kind) for kind in _KINDS)
        return not (self.trusted or learned or self.unpriced_answers >= MAX_UNPRICED_ANSWERS)

    @property
    def unpriced_answers(self) -> int:
        """Number of answers from which no price could be learned: without a charge, or with an error."""
        return self._unpriced.total()

    def observe_unpriced(self, kinds: Sequence[str | None]) -> None:
        """Count an answer with an error or without a charge, which shows no price.

        `kinds` are the media types of its rows: image, video or None (unknown).
        """
        self._unpriced[price_key_of(kinds)] += 1

    def observe(self, kinds: Sequence[str | None], frames: FrameRange, paid: int) -> str | None:
        """Learn the price of requests from a charge, and return a sentence about it if it contradicts earlier charges.

        A charge of 0 is ignored, because the next request may cost something.

        Args:
            kinds: Media type of each row of the request: image, video or None (unknown).
            frames: Number of images and video frames that were charged.
            paid: Credits charged.
        """
        if not paid:
            return None
        charge = (price_key_of(kinds), frames, paid)
        if self._charge_counts[charge] >= AGREEING_AFTER_CHANGE:  # a charge seen so often teaches nothing new
            return None
        drift = self.learner.observe(Charge(*charge))
        self._max_credits.clear()
        if drift is not None:
            self._charge_counts.clear()
        self._charge_counts[charge] += 1
        return None if drift is None else f"{paid} credits were charged where {drift.expected} was expected."
