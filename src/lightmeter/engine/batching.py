"""Decide which rows of the manifest share a request (a batch). No input or output.

Each video, each video frame and each local file has a request of its own. Images by URL may share a request. A request
usually has one image, because a service answers a single image at once, and because a lost request then costs the price
of only one image. There are two reasons for more images per request (`--batch-size auto`). First, the service may limit
the number of *requests* per second. Second, it may round the charge of each request up to whole credits; then several
images share the loss by rounding. The price of one request does not exceed the user's cap (`max_at_risk`).

If the service refuses a batch as a whole, it charges nothing. The batch is then halved until the row that causes the
refusal stands alone. For one such row in a batch of n rows, this takes at most 2 · ⌈log2 n⌉ more requests, which cost
no more credits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from math import ceil
from typing import Final

from lightmeter.journal.queries.pending_rows import PendingRow
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.pricing.price_learner import cheapest_batch
from lightmeter.pricing.rates import Rounding

MAX_AUTO_BATCH_SIZE: Final = 10
"""Most images that `--batch-size auto` puts into one request. Public clients send this many; no limit is documented."""

MIN_ROWS_TO_LEARN_ROUNDING: Final = 50
"""If at least this many rows are pending, a batch is sent to learn how the service rounds charges.

The batch costs some seconds, but no additional credits.
"""

MIN_RUN_TIME_FOR_BATCHES_S: Final = 30.0
"""Least duration of the rest of the run, in seconds, at which a limit on requests per second leads to batches.

For a shorter rest, batches do not pay off: their answers come seconds later, by polling.
"""

_MILLI: Final = 1000
"""Millicredits per credit."""

PriceFunction = Callable[[Sequence[PendingRow]], int]
"""A function that returns the highest price, in whole credits, of one request with the given rows."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of the manifest that one request contains, and the number of credits to reserve for it (`hold`)."""

    rows: tuple[PendingRow, ...]
    hold: int


def auto_batch_size(
    price_per_image_milli: int,
    rounding: Rounding | None,
    *,
    requests_per_s: float | None = None,
    unlimited_per_s: float = 80.0,
    rows_left: int = 0,
    max_at_risk: int | None = None,
) -> int:
    """Return the number of images in one request for `--batch-size auto`: 1 to `MAX_AUTO_BATCH_SIZE`.

    Args:
        price_per_image_milli: Millicredits per image, before rounding.
        rounding: Whether the service rounds charges up per image or per request; None while that is not known.
        requests_per_s: The learned limit on requests per second; None if none is known. Also None for a service that is
            merely slow, because larger batches would not make it faster.
        unlimited_per_s: Requests per second that the run could send if there were no such limit.
        rows_left: Rows that are pending.
        max_at_risk: Most credits in one request; None means no cap.
    """
    size = 1
    if requests_per_s is not None and rows_left / requests_per_s >= MIN_RUN_TIME_FOR_BATCHES_S:
        size = min(MAX_AUTO_BATCH_SIZE, max(1, ceil(unlimited_per_s / requests_per_s)))
    if rounding is Rounding.REQUEST or (rounding is None and rows_left >= MIN_ROWS_TO_LEARN_ROUNDING):
        # Requests that fill whole credits are cheaper.
        cheapest = cheapest_batch(price_per_image_milli, MAX_AUTO_BATCH_SIZE, Rounding.REQUEST)
        size = min(MAX_AUTO_BATCH_SIZE, ceil(size / cheapest) * cheapest)
        size -= size % cheapest if size > cheapest else 0
    if max_at_risk is not None:
        # While the rounding is unknown, the price of each image counts as rounded up.
        image = price_per_image_milli if rounding is Rounding.REQUEST else ceil(price_per_image_milli / _MILLI) * _MILLI
        size = min(size, max_at_risk * _MILLI // max(1, image))
    return max(1, size)


class NameReliability(StrEnum):
    """What answers have shown about the names of their assets: whether each name identifies the image that was sent."""

    UNKNOWN = "unknown"
    """No answer has shown anything yet."""
    SINGLES_IDENTIFY = "singles_identify"
    """An answer to a request with one image named this image as it was named in the request."""
    BATCHES_IDENTIFY = "batches_identify"
    """An answer to a batch named each image as it was named in the request."""
    DO_NOT_IDENTIFY = "do_not_identify"
    """In some answer, a name did not identify its image, or half of the images or more were missing."""


_TRANSITIONS: Final[dict[tuple[NameReliability, bool, bool], NameReliability]] = {
    # (before, the answer is of a batch, all its names identify their images): after
    (NameReliability.UNKNOWN, False, True): NameReliability.SINGLES_IDENTIFY,
    (NameReliability.UNKNOWN, True, True): NameReliability.BATCHES_IDENTIFY,
    (NameReliability.SINGLES_IDENTIFY, True, True): NameReliability.BATCHES_IDENTIFY,
}
"""(State before an answer, the answer is of a batch, all its names identify their images) → state after the answer.

A combination that is not in this table changes nothing.
"""


class NameReliabilityTracker:
    """Learns from answers whether several images may share one request.

    If an answer does not name its images, the results of a batch are paid for but useless. So images are sent one by
    one until an answer repeats the name of its image. Then one batch of two images is tried. If its answer repeats both
    names, any batch size is allowed. After an answer with a wrong name, or without half of the images, images are sent
    one by one for the rest of the run.
    """

    def __init__(self, reliability: NameReliability) -> None:
        self.reliability = reliability
        self._batches_under_way = 0

    @property
    def max_images_per_request(self) -> int:
        """Most images that may share a request now."""
        if self.reliability is NameReliability.BATCHES_IDENTIFY:
            return sys.maxsize
        return 2 if self.reliability is NameReliability.SINGLES_IDENTIFY and not self._batches_under_way else 1

    def on_request_started(self, images: int) -> None:
        """Record that a request with `images` images is now being sent, or that its answer is now polled for.

        For a request whose answer is polled for, call it twice, once for the sending and once for the polling. While a
        recorded request has more than one image, `max_images_per_request` allows no second trial batch: one batch of
        two images shows whether the service names the images of a batch.
        """
        self._batches_under_way += images > 1

    def on_request_ended(self, images: int) -> None:
        """Record that a request with `images` images is no longer being sent, or its answer no longer polled for.

        Call it once for each call of `on_request_started`, with the same number.
        """
        self._batches_under_way -= images > 1

    def on_answer(self, images: int, *, identified: bool) -> None:
        """Learn from the answer to a request whether the names in answers identify images.

        Args:
            images: The number of images in the request.
            identified: Whether the name of each asset in the answer identifies its image.
        """
        if not identified:
            self.reliability = NameReliability.DO_NOT_IDENTIFY
        self.reliability = _TRANSITIONS.get((self.reliability, images > 1, identified), self.reliability)


class Bisection:
    """Remembers the rows of refused batches, which are sent again in two halves to find the row that is refused."""

    def __init__(self) -> None:
        self._halves: dict[int, tuple[int, int]] = {}
        self._numbers = count()

    @property
    def has_pending_halves(self) -> bool:
        """Whether some row of a refused batch still has to be sent again, or was sent again and has no answer yet."""
        return bool(self._halves)

    def on_batch_refused(self, seqs: Sequence[int]) -> bool:
        """Split the rows (`seqs`) of a refused request into two halves; return False if it had only one row."""
        for seq in seqs:
            self._halves.pop(seq, None)
        if len(seqs) < 2:  # noqa: PLR2004 (one row cannot be halved)
            return False
        middle = (len(seqs) + 1) // 2
        for half in (seqs[:middle], seqs[middle:]):
            number = next(self._numbers)
            self._halves.update(dict.fromkeys(half, (number, len(half))))
        return True

    def on_batch_accepted(self, seqs: Iterable[int]) -> None:
        """Forget that the rows `seqs` were in a refused batch: a request with them was accepted."""
        for seq in seqs:
            self._halves.pop(seq, None)

    def half_of(self, seq: int) -> tuple[int, int] | None:
        """Return (id, number of rows) of the half of a refused batch that row `seq` is in; None for any other row."""
        return self._halves.get(seq)


def group_into_batches(
    rows: Iterable[PendingRow],
    batch_size: Callable[[], int],
    price: PriceFunction,
    bisection: Bisection,
) -> Iterator[Batch]:
    """Yield batches of rows; read no more of `rows` than the next batch needs.

    Batches come in the order of the rows, but a video or file overtakes images that wait for their batch to be full.
    Rows with the same URL do not share a request, because a service may return only one result for both.

    Args:
        rows: The pending rows.
        batch_size: Returns the most images for the next request. It is called for each batch, as the number changes.
        price: Returns the most credits that one request with given rows costs.
        bisection: Knows the rows of refused batches; each half of such a batch becomes a batch of its own.
    """
    waiting: dict[str, PendingRow] = {}
    size = 0
    halves: dict[int, list[PendingRow]] = {}
    for row in rows:
        half = bisection.half_of(row.seq)
        if half is not None:
            number, row_count = half
            halves.setdefault(number, []).append(row)
            if len(halves[number]) == row_count:
                yield _priced(halves.pop(number), price)
        elif row.kind == "video" or row.path is not None or row.frame is not None:
            yield _priced([row], price)
        else:
            name = canonical_url(row.url)
            if name in waiting:
                yield _priced([*waiting.values()], price)
                waiting = {}
            size = size if waiting else batch_size()
            waiting[name] = row
            if len(waiting) >= size:
                yield _priced([*waiting.values()], price)
                waiting = {}
    for remaining in ([*waiting.values()], *halves.values()):
        if remaining:
            yield _priced(remaining, price)


def _priced(rows: Sequence[PendingRow], price: PriceFunction) -> Batch:
    return Batch(tuple(rows), price(rows))


def trim_batch(batch: Batch, max_credits: int | None, price: PriceFunction) -> Batch | None:
    """Return a batch of the first rows of `batch`, as many as `max_credits` pay for.

    Return None if the first row alone costs more than `max_credits`.

    Args:
        batch: The batch; rows that are cut off stay pending.
        max_credits: Most credits to reserve; None means no limit.
        price: Returns the most credits that one request with given rows costs. More rows never cost less.
    """
    if max_credits is None or batch.hold <= max_credits:
        return batch
    fits, too_many = 0, len(batch.rows)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if price(batch.rows[:middle]) <= max_credits:
            fits = middle
        else:
            too_many = middle
    return _priced(batch.rows[:fits], price) if fits else None
