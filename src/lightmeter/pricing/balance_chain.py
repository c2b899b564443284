"""The chain of balances: answers in the order in which they were charged, and the gaps between them.

Nobody says in which order requests were charged, but each answer carries the balance that its charge left, and while
nothing is added a balance only falls: sorted by it, the answers are a chain from the opening balance to the closing
one. What is missing between two links was charged by something that gave no answer: a lost request of ours, or others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lightmeter.pricing.estimate import CreditRange

__all__ = [
    "AnsweredRequest",
    "ChainSegment",
    "PossiblePrices",
    "UncertainRequest",
    "chain_segments",
    "first_segment",
    "last_segment",
    "out_of_order_pairs",
]

PossiblePrices = CreditRange | frozenset[int]
"""What a request can cost: any of these, in whole credits."""

_ANY: Final = CreditRange(0, None)


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request whose answer is in hand.

    Attributes:
        key: What it is called in a report; unique.
        paid: Credits charged; None if the answer does not say, then `prices` counts.
        remaining: The balance right after that charge; None if the answer does not say.
        prices: What it can have cost, if it does not say.
        sent: When it left, and
        answered: when its answer was written down: any numbers that only grow, such as the positions of both
            events in a journal; None when not known. A request was charged between the two.
    """

    key: int
    paid: int | None
    remaining: int | None
    prices: PossiblePrices = _ANY
    sent: int | None = None
    answered: int | None = None


@dataclass(frozen=True, slots=True)
class UncertainRequest:
    """A request that left and has no answer: charged once at one of `prices`, or not at all.

    Attributes:
        key: What it is called in a report; unique.
        prices: What it can have cost.
        sent: When it left, as for `AnsweredRequest`; None when not known.
        final: When its charge was final if there is one, on the same scale: before a look at the balance that was
            repeated and the same. None: before the closing one.
    """

    key: int
    prices: PossiblePrices
    sent: int | None = None
    final: int | None = None


@dataclass(frozen=True, slots=True)
class ChainSegment:
    """The stretch before one link of the chain.

    Attributes:
        after: Key of the link before, None for the opening balance.
        before: Key of the link that ends it, None for the closing balance.
        missing: Credits that went in it beside the link's own charge; below 0: so many came.
    """

    after: int | None
    before: int | None
    missing: int


def chain_segments(
    opening: int, closing: int, answers: Sequence[AnsweredRequest]
) -> tuple[list[ChainSegment], list[AnsweredRequest]]:
    """The stretches of the chain, one more than links, and the links in their order.

    Answers that do not say their balance are no links. One that does not say its charge leaves it missing in the
    segment that it ends.
    """
    links = sorted((one for one in answers if one.remaining is not None), key=_place)
    found, balance, after = [], opening, None
    for link in links:
        remaining = link.remaining or 0
        found.append(ChainSegment(after, link.key, balance - (link.paid or 0) - remaining))
        balance, after = remaining, link.key
    return [*found, ChainSegment(after, None, balance - closing)], links


def _place(link: AnsweredRequest) -> tuple[int, int, int]:
    """By balance, falling; at one balance the charge that led to it came first, those of nothing last, as they left."""
    said = 1 if link.paid is None else 2 * (link.paid == 0)
    return -(link.remaining or 0), said, -1 if link.sent is None else link.sent


def out_of_order_pairs(links: Sequence[AnsweredRequest]) -> list[tuple[int, int]]:
    """Pairs of links, by key, that the chain puts in an order they cannot have been charged in.

    Then the balance rose in between: what a chain sorted by balance takes for granted does not hold.
    """
    found = []
    first: AnsweredRequest | None = None  # of all links further on, the one whose answer was there first
    for link in reversed(links):
        if first is not None and first.answered is not None and link.sent is not None and link.sent > first.answered:
            found.append((link.key, first.key))
        if link.answered is not None and (first is None or first.answered is None or link.answered < first.answered):
            first = link
    return found[::-1]


def first_segment(links: Sequence[AnsweredRequest], sent: int | None) -> int:
    """The first segment in which something that left at `sent` can have been charged, as a position."""
    if sent is None:
        return 0
    before = [at for at, link in enumerate(links) if link.answered is not None and link.answered < sent]
    return before[-1] + 1 if before else 0


def last_segment(links: Sequence[AnsweredRequest], answered: int | None) -> int:
    """The last segment in which something answered at `answered` can have been charged, as a position."""
    if answered is None:
        return len(links)
    return next((at for at, link in enumerate(links) if link.sent is not None and link.sent > answered), len(links))
