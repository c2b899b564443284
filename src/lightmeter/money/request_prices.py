"""Learn the prices of a run's requests from their charges.

The prices decide how many credits to reserve for a request, and whether to send single images first, to learn the
price.
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
from lightmeter.journal.queries.pending_rows import PendingRow
from lightmeter.pricing.estimate import FrameRange
from lightmeter.pricing.price_learner import AGREEING_AFTER_CHANGE, Charge, PriceLearner
from lightmeter.pricing.rates import Rounding, whole_credits

MAX_UNPRICED_ANSWERS: Final = 5
"""Number of answers without a usable charge after which a run trusts the price table.

Until it has learned a price or trusts the table, a run sends one request at a time.
"""

_UNKNOWN: Final = "unknown"
_KINDS: Final = ("image", "video", _UNKNOWN)
"""Kinds of requests with different prices. A request with images and videos has the kind `unknown`.

All requests of a run have the same options, so only the kind of the assets (images or videos) changes the price.
"""

MAX_RECENT_CHARGES: Final = 2000
"""When a run is started again, it learns prices from at most this many of its newest charges.

More charges would delay the start and hardly change the result.
"""


def price_key_of(kinds: Sequence[str | None]) -> str:
    """Return the kind of a request, on which its price depends: `image`, `video` or `unknown`.

    The kind is `image` or `video` if all rows of the request have this media type, otherwise `unknown`. `kinds` are the
    media types of the rows: `image`, `video` or None (unknown).
    """
    kind = kinds[0] if len(set(kinds)) == 1 else None
    return kind if kind in _KINDS else _UNKNOWN


def learner_from_journal(db: sqlite.Connection, header: RunHeader, recent: int | None = None) -> PriceLearner:
    """Return the prices of a run's requests as learned from its charges so far.

    Before the first charge, the price of all requests is the planned price. For the embedded service, it is known that
    the price of each picture (image or video frame) is rounded up.

    Args:
        db: The journal of the run.
        header: The header of the run, with the planned price.
        recent: Number of the newest charges to learn from; None for all charges.
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
        cautious: Whether the first requests are sent one at a time, and few credits are reserved, until charges have
            shown the price. Without a cap on credits, or if the service is known to charge by lightmeter's price table,
            this has no use.
        retry_milli: Price of a retry about one image or video frame by the price table, in thousandths of a credit.
        has_charge: Whether the service has charged a request of the run at its present address. If not, the prices
            learned may be those of another service.
    """

    def __init__(self, learner: PriceLearner, *, cautious: bool, retry_milli: int, has_charge: bool = True) -> None:
        self.learner = learner
        self.cautious = cautious
        self._has_charge = has_charge
        self._retry_milli = retry_milli
        self._retries = 0
        self._max_retry_credits = 0
        self._charge_counts: Counter[tuple[str, FrameRange, int]] = Counter()
        self._max_credits: dict[tuple[str, int], int] = {}
        self._unpriced: Counter[str] = Counter()

    def max_credits(self, rows: Sequence[PendingRow]) -> int:
        """Return the most credits, 1 or more, that a request with these manifest rows can cost by the prices learned.

        A row whose number of frames has no upper bound counts as one image. Such rows are sent only if there is no
        budget.
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
        """Whether retries (second requests, after an invalid answer to `--ask`) must be sent one at a time.

        This is so until a charge has shown the price of a retry, if prices must be learned first.
        """
        return self.cautious and self._retries == 0

    def observe_retry(self, pictures: int | None, paid: int) -> None:
        """Learn the price of retries (second requests, after an invalid answer to `--ask`) from the charge of a retry.

        `pictures` is the number of images and video frames in the retry, or None if unknown. `paid` is its charge in
        credits.
        """
        self._retries += 1
        self._max_retry_credits = max(self._max_retry_credits, -(-paid // max(1, pictures or 1)))

    @property
    def must_learn_price(self) -> bool:
        """Whether requests must be sent one at a time, because a cap needs the price, which is not known yet.

        It is False as soon as a charge at the service's present address has shown a price, or after
        `MAX_UNPRICED_ANSWERS` answers that showed no price.
        """
        learned = self._has_charge and any(self.learner.knows(kind) for kind in _KINDS)
        return self.cautious and not (learned or self.unpriced_answers >= MAX_UNPRICED_ANSWERS)

    @property
    def unpriced_answers(self) -> int:
        """Number of answers that showed no price, because they had no charge, a charge of 0, or an error."""
        return self._unpriced.total()

    def observe_unpriced(self, kinds: Sequence[str | None]) -> None:
        """Count an answer that shows no price, because it has no charge, a charge of 0, or an error.

        `kinds` are the media types of the request's rows: image, video or None (unknown).
        """
        self._unpriced[price_key_of(kinds)] += 1

    def observe(self, kinds: Sequence[str | None], frames: FrameRange, paid: int) -> str | None:
        """Learn the price of requests from a charge.

        If it contradicts earlier charges, return a sentence about it, else None.

        A charge of 0 counts as an answer that shows no price, because the next request may cost something.

        Args:
            kinds: Media type of each row of the request: image, video or None (unknown).
            frames: Number of images and video frames that were charged.
            paid: Credits charged.
        """
        if not paid:
            self.observe_unpriced(kinds)
            return None
        self._has_charge = True
        charge = (price_key_of(kinds), frames, paid)
        if self._charge_counts[charge] >= AGREEING_AFTER_CHANGE:  # a charge seen so often teaches nothing new
            return None
        drift = self.learner.observe(Charge(*charge))
        self._max_credits.clear()
        if drift is not None:
            self._charge_counts.clear()
        self._charge_counts[charge] += 1
        return None if drift is None else f"{paid} credits were charged where {drift.expected} was expected."
