"""Which rows travel together: pure. Videos and local files travel alone; images by URL in batches where that pays.

A single image is answered at once, and a lost request loses one price: so one is the size, unless something speaks for
more. Two things do: a limit on *requests* that leaves room for more images in each, and a charge that is rounded up
for each request, so that requests that fill whole credits are cheaper. What is at risk in one request stays under the
user's cap whatever else is decided.

A batch that is refused as a whole has cost nothing; it is halved until the row that spoils it stands alone. One such
row in a batch of n costs at most 2 · ⌈log2 n⌉ requests more, and no credit: the halves are sent because the whole was
not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from math import ceil
from typing import Final

from lightmeter.journal.items import PendingRow
from lightmeter.pricing.price_learner import cheapest_batch
from lightmeter.pricing.rates import Rounding

__all__ = [
    "MAX_AUTO_BATCH_SIZE",
    "Batch",
    "BatchSizeInputs",
    "Bisection",
    "NameReliability",
    "NameReliabilityTracker",
    "auto_batch_size",
    "group_into_batches",
    "trim_batch",
]

MAX_AUTO_BATCH_SIZE: Final = 10
"""Most images that `auto` puts into one request: public clients are known to send so many, no limit is documented."""

MAX_IMAGES: Final = 1 << 30
"""Images in a request where nothing bounds them."""

ROWS_WORTH_A_PROBE: Final = 50
"""Rows that must wait before a batch is sent to see where the service rounds: it costs no credit, but some seconds."""

LEAST_GAIN_S: Final = 30.0
"""Batches are answered by polling, seconds later: they must save at least so much of the whole run."""

Price = Callable[[Sequence[PendingRow]], int]
"""Most that rows can cost as one request, in whole credits."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one request, and the credits set aside for it."""

    rows: tuple[PendingRow, ...]
    hold: int


@dataclass(frozen=True, slots=True)
class BatchSizeInputs:
    """What the size of requests is decided by.

    Attributes:
        price_per_image_milli: Millicredits an image, before rounding.
        rounding: Where the service rounds charges up; None while that is not known.
        requests_per_s: The learned limit on requests; None while none was met, or where the service is merely slow,
            because more images in a request would not make it faster.
        latency_s: Seconds until a single image is answered, above 0.
        at_once: Most requests in flight, 1 or more.
        rows_left: Rows that wait.
        max_at_risk: Most credits in one request; None means no cap.
    """

    price_per_image_milli: int
    rounding: Rounding | None = None
    requests_per_s: float | None = None
    latency_s: float = 0.1
    at_once: int = 8
    rows_left: int = 0
    max_at_risk: int | None = None


def auto_batch_size(terms: BatchSizeInputs) -> int:
    """Images in one request, 1 to `MAX_AUTO_BATCH_SIZE`, for `--batch-size auto`."""
    size = max(_size_for_speed(terms), 1)
    if _may_round_requests(terms):
        cheapest = cheapest_batch(terms.price_per_image_milli, MAX_AUTO_BATCH_SIZE, Rounding.REQUEST)
        size = min(MAX_AUTO_BATCH_SIZE, ceil(size / cheapest) * cheapest)
        size -= size % cheapest if size > cheapest else 0
    return max(1, min(size, MAX_AUTO_BATCH_SIZE, _at_risk(terms)))


def _may_round_requests(terms: BatchSizeInputs) -> bool:
    """Whether requests that fill whole credits are cheaper, or may be: a batch is dearer under neither rounding."""
    return terms.rounding is Rounding.REQUEST or (terms.rounding is None and terms.rows_left >= ROWS_WORTH_A_PROBE)


def _size_for_speed(terms: BatchSizeInputs) -> int:
    """So many images in each request that the limit on requests is no longer what the run waits for."""
    if terms.requests_per_s is None:
        return 1
    without_limit_s = terms.at_once / max(0.001, terms.latency_s)
    if terms.requests_per_s >= without_limit_s or terms.rows_left / terms.requests_per_s < LEAST_GAIN_S:
        return 1
    return min(MAX_AUTO_BATCH_SIZE, ceil(without_limit_s / terms.requests_per_s))


def _at_risk(terms: BatchSizeInputs) -> int:
    """Images whose prices, each rounded up as long as nothing better is known, stay under the cap."""
    if terms.max_at_risk is None:
        return MAX_AUTO_BATCH_SIZE
    if terms.rounding is Rounding.REQUEST:
        return terms.max_at_risk * 1000 // max(1, terms.price_per_image_milli)
    return terms.max_at_risk // max(1, ceil(terms.price_per_image_milli / 1000))


class NameReliability(StrEnum):
    """What is known of the names that a service gives to assets."""

    UNKNOWN = "unknown"
    """No answer was seen yet."""
    SINGLES_IDENTIFY = "singles_identify"
    """Names of single images are those that were sent."""
    BATCHES_IDENTIFY = "batches_identify"
    """Names of all images of a batch were those that were sent."""
    DO_NOT_IDENTIFY = "do_not_identify"
    """Some name does not tell which image it is."""


_NAMES: Final[dict[tuple[NameReliability, bool, bool], NameReliability]] = {
    # (known so far, the answer is of a batch, all its names identify their images): known from now on
    (NameReliability.UNKNOWN, False, True): NameReliability.SINGLES_IDENTIFY,
    (NameReliability.UNKNOWN, True, True): NameReliability.BATCHES_IDENTIFY,
    (NameReliability.SINGLES_IDENTIFY, True, True): NameReliability.BATCHES_IDENTIFY,
}

_TRIAL_IMAGES: Final = 2


class NameReliabilityTracker:
    """Whether images of this service may travel together: learned from single images, then from one batch of two.

    An image whose asset cannot be told from the others of its batch is paid for and lost. So images travel alone until
    names were seen to identify them, and for good once one did not.

    Attributes:
        names: What is known.
    """

    def __init__(self, names: NameReliability = NameReliability.UNKNOWN) -> None:
        self.names = names
        self._batches = 0

    @property
    def max_images_per_request(self) -> int:
        """Most images that may travel in one request now."""
        if self.names is NameReliability.BATCHES_IDENTIFY:
            return MAX_IMAGES
        return _TRIAL_IMAGES if self.names is NameReliability.SINGLES_IDENTIFY and not self._batches else 1

    def on_request_started(self, images: int) -> None:
        """A request with so many images begins to be sent, or to be polled for."""
        self._batches += images > 1

    def on_request_ended(self, images: int) -> None:
        """It is no longer sent, or polled for."""
        self._batches -= images > 1

    def on_answer(self, images: int, *, identified: bool) -> None:
        """An answer has come; `identified`: each of its images carries a name that tells which it is."""
        if not identified:
            self.names = NameReliability.DO_NOT_IDENTIFY
        self.names = _NAMES.get((self.names, images > 1, identified), self.names)


class Bisection:
    """Rows of refused batches, and which of them travel together next."""

    def __init__(self) -> None:
        self._halves: dict[int, tuple[int, int]] = {}
        self._numbers = count()

    @property
    def waits(self) -> bool:
        """Whether there are halves that were not taken yet."""
        return bool(self._halves)

    def refused(self, seqs: Sequence[int]) -> bool:
        """A request with these rows was refused as a whole; False if it was one row: that is the one to blame."""
        for seq in seqs:
            self._halves.pop(seq, None)
        if len(seqs) < 2:  # noqa: PLR2004 (one row cannot be halved)
            return False
        middle = (len(seqs) + 1) // 2
        for half in (seqs[:middle], seqs[middle:]):
            number = next(self._numbers)
            self._halves.update(dict.fromkeys(half, (number, len(half))))
        return True

    def taken(self, seqs: Iterable[int]) -> None:
        """A request with these rows was taken: they are suspected no longer."""
        if self._halves:
            for seq in seqs:
                self._halves.pop(seq, None)

    def half_of(self, seq: int) -> tuple[int, int] | None:
        """The number of the half that a row belongs to, and how many rows that has; None for one never refused."""
        return self._halves.get(seq)


def group_into_batches(
    rows: Iterable[PendingRow], size: Callable[[], int], price: Price, bisection: Bisection | None = None
) -> Iterator[Batch]:
    """Group rows, nearly in their order; asks for no more rows than the next batch needs.

    Args:
        rows: What waits to be sent.
        size: Most images in the next request; asked for each anew, because what speaks for it changes.
        price: Most that rows can cost together.
        bisection: Rows of refused batches: each half travels by itself.
    """
    waiting: list[PendingRow] = []
    most = 0
    halves: dict[int, list[PendingRow]] = {}
    for row in rows:
        half = bisection.half_of(row.seq) if bisection is not None else None
        if half is not None:
            number, whole = half
            halves.setdefault(number, []).append(row)
            if len(halves[number]) == whole:
                yield _batch(halves.pop(number), price)
        elif row.kind == "video" or row.path is not None:
            yield _batch([row], price)
        else:
            most = most if waiting else size()
            waiting.append(row)
            if len(waiting) >= most:
                yield _batch(waiting, price)
                waiting = []
    for left in (waiting, *halves.values()):
        if left:
            yield _batch(left, price)


def _batch(rows: Sequence[PendingRow], price: Price) -> Batch:
    return Batch(tuple(rows), price(rows))


def trim_batch(batch: Batch, most: int, price: Price) -> Batch | None:
    """As many of its first rows as cost no more than `most` credits together; None if not even the first does.

    A price that grows with the rows is taken for granted. The rows that are cut off wait on.
    """
    if batch.hold <= most:
        return batch
    fits, too_many = 0, len(batch.rows)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if price(batch.rows[:middle]) <= most:
            fits = middle
        else:
            too_many = middle
    return _batch(batch.rows[:fits], price) if fits else None
