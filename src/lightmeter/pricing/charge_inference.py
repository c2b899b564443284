"""The balance proof: which requests without an answer were charged, told from balances alone.

A verdict is given only if it is true in every world that fits what was seen: every set of charges that explains each
gap in the chain of balances, at any of the possible prices, in any order that the journal allows. Everything else is
ambiguous. What a proof takes for granted is said by the caller (`AccountAssumptions`) and beside each verdict: with
nobody adding credits a balance only falls, so a gap too small for a price proves that it was not charged, whoever else
spends; that a request *was* charged, or which of several, is proven only on an account that nobody else uses.

A spender who takes exactly a possible price, at the right moment, on an account said to be used by nobody else,
cannot be told from a charge by anyone: balances are all there is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

from lightmeter.pricing.balance_chain import (
    AnsweredRequest,
    ChainSegment,
    PossiblePrices,
    UncertainRequest,
    chain_segments,
    first_segment,
    last_segment,
    out_of_order_pairs,
)
from lightmeter.pricing.estimate import CreditRange
from lightmeter.pricing.subset_sum import MAX_WORK_BITS, ItemPossibilities, PackingItem, max_fill, possibilities

__all__ = [
    "AccountAssumptions",
    "BalanceGap",
    "BalanceWindow",
    "ChargeVerdict",
    "ProofOutcome",
    "Reconciliation",
    "reconcile",
]


MAX_GAPS: Final = 1000
"""Gaps looked at one by one; of further ones only those count that no uncertain request can have left."""


class ProofOutcome(StrEnum):
    """What became of a request without an answer; the words are those of the journal's states."""

    UNPAID = "proven_unpaid"
    PAID = "proven_paid"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class BalanceWindow:
    """What was seen between two looks at the balance.

    Attributes:
        opening: The balance before the first request left.
        closing: Two later balances, read some time apart with nothing in flight: equal once all charges are final.
        answers: Every request that has an answer; a balance read in between is one that paid 0.
        uncertain: Every request that left and has none.
    """

    opening: int
    closing: tuple[int, int]
    answers: tuple[AnsweredRequest, ...] = ()
    uncertain: tuple[UncertainRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class AccountAssumptions:
    """What may be taken for granted about the account, because no balance tells it.

    Attributes:
        sole_spender: Nobody else spent from it in the window: something the user must say, because who spends a
            possible price cannot be seen. Given up by itself when the numbers refute it.
        added: Credits added in the window, as the user says. The chain is not used then: only the sums are.
        min_unreported_addition: The fewest credits that can be added unsaid, if any can be; None: none were.
        answers_form_chain: Each answer says the balance right after its charge, so that answers in their order are a
            chain. True with one request in flight, or for a service known to do so. Not so where a service holds the
            most a request can cost and gives the rest back, or says the balance of a later moment: then only the sums
            between the two ends of the window count, which is always safe.
    """

    sole_spender: bool = False
    added: int = 0
    min_unreported_addition: int | None = None
    answers_form_chain: bool = False


@dataclass(frozen=True, slots=True)
class ChargeVerdict:
    """What became of one uncertain request.

    Attributes:
        key: The request.
        proven: What is proven.
        even_if_others_spend: The proof holds also if the account has other spenders.
        proof: The numbers, as a sentence to keep.
    """

    key: int
    proven: ProofOutcome
    even_if_others_spend: bool
    proof: str


@dataclass(frozen=True, slots=True)
class BalanceGap:
    """Credits that went between two links of the chain with no answer for them.

    Attributes:
        segment: Where, and how many.
        candidates: Uncertain requests that can have taken them, by key.
        unexplained: At least so many of them none of the candidates took: others spent them, or a request of ours
            that the window does not name.
    """

    segment: ChainSegment
    candidates: tuple[int, ...]
    unexplained: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What two balances and the answers between them prove.

    Attributes:
        expected: What the balance would be had nothing uncertain been charged.
        missing: Credits below that; below 0: so many above it.
        verdicts: One for each uncertain request, in the order given.
        gaps: Where credits went without an answer: the first `MAX_GAPS`.
        foreign: At least so many credits went to others or to requests not named; 0 if all can be explained.
        rose: At least so many credits were added unsaid; 0 if none are seen.
        notes: What a person should know, a sentence each.
    """

    expected: int
    missing: int
    verdicts: tuple[ChargeVerdict, ...]
    gaps: tuple[BalanceGap, ...] = ()
    foreign: int = 0
    rose: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """A window made ready: the stretches in which credits are missing, and what can lie in them."""

    window: BalanceWindow
    expected: int
    missing: int
    stretches: list[ChainSegment]
    uncertain: list[PackingItem]
    unsaid: list[PackingItem]

    @property
    def items(self) -> list[PackingItem]:
        return [*self.unsaid, *self.uncertain]


def reconcile(
    window: BalanceWindow, trust: AccountAssumptions | None = None, *, most_work_bits: int = MAX_WORK_BITS
) -> Reconciliation:
    """Prove what became of each uncertain request, as far as balances can.

    Args:
        window: What was seen.
        trust: What may be taken for granted; by default only that nothing was added.
        most_work_bits: Bound of the work; what it does not suffice for stays ambiguous.

    Returns:
        A verdict for each uncertain request, and what else the numbers show.

    Raises:
        ValueError: a key is there twice: a bug of the caller.
    """
    trust = trust or AccountAssumptions()
    keys = [*(one.key for one in window.answers), *(one.key for one in window.uncertain)]
    if len(keys) != len(set(keys)):
        raise ValueError("A request is in the window twice.")
    spent = sum(one.paid or 0 for one in window.answers)
    expected = window.opening + trust.added - spent
    missing = expected - window.closing[1]
    if window.closing[0] != window.closing[1]:
        before, now = window.closing
        why = f"The balance still moves ({before}, then {now}): charges are not final yet."
        return _all_ambiguous(window, expected, missing, why)
    found, links = _stretches(window, trust, missing)
    rose = max(0, -missing, -min(segment.missing for segment in found))
    if rose or (out_of_order := out_of_order_pairs(links)):
        why = (
            f"The balance rose by {rose} credits or more: credits were added or given back."
            if rose
            else f"The balance rose: #{out_of_order[0][0]} left after #{out_of_order[0][1]} was answered with less."
        )
        return _all_ambiguous(window, expected, missing, why, rose=max(1, rose))
    case = _case(window, found, links, (expected, missing))
    if (unseen := _may_hide_an_addition(case, trust)) is not None:
        return _all_ambiguous(window, expected, missing, unseen)
    return _judge(case, trust, most_work_bits)


def _stretches(
    window: BalanceWindow, trust: AccountAssumptions, missing: int
) -> tuple[list[ChainSegment], list[AnsweredRequest]]:
    if trust.added or not trust.answers_form_chain:
        return [ChainSegment(None, None, missing)], []
    found, links = chain_segments(window.opening, window.closing[1], window.answers)
    return (found, links) if links else ([ChainSegment(None, None, missing)], [])


def _case(
    window: BalanceWindow, found: list[ChainSegment], links: list[AnsweredRequest], sums: tuple[int, int]
) -> _Case:
    """Keep the stretches in which something is missing: nothing was charged in the others."""
    stretches = [segment for segment in found if segment.missing]
    places = [at for at, segment in enumerate(found) if segment.missing]
    largest = list(accumulate((segment.missing for segment in reversed(stretches)), max))[::-1]  # from here on
    link_at = {link.key: at for at, link in enumerate(links)}

    def item(prices: PossiblePrices, first: int, last: int, *, must: bool) -> PackingItem:
        bins = range(bisect_left(places, first), bisect_right(places, last))
        runs = _runs(prices, largest[bins.start] if bins else 0)
        return PackingItem(bins, runs, must=must and 0 not in prices)

    uncertain = [
        item(one.prices, first_segment(links, one.sent), last_segment(links, one.final), must=False)
        for one in window.uncertain
    ]
    unsaid = []
    for one in window.answers:
        if one.key in link_at and one.paid is None:
            unsaid.append(item(one.prices, *_own_segments(links, one), must=True))
        elif one.key not in link_at and links:  # its charge lies somewhere in the chain
            prices = one.prices if one.paid is None else frozenset({one.paid})
            first, last = first_segment(links, one.sent), last_segment(links, one.answered)
            unsaid.append(item(prices, first, last, must=True))
        elif one.key not in link_at and one.paid is None:
            unsaid.append(item(one.prices, 0, len(found) - 1, must=True))
    return _Case(window, *sums, stretches, uncertain, unsaid)


def _own_segments(links: list[AnsweredRequest], unsaid: AnsweredRequest) -> tuple[int, int]:
    """Where an answer that does not say its charge was charged: before itself, or before one that left as much.

    Of answers that left the same balance one at most was charged anything: then it is no other. (0, -1): nowhere.
    """
    tied = [at for at, link in enumerate(links) if link.remaining == unsaid.remaining]
    charged = [at for at in tied if links[at].paid or (links[at].paid is None and 0 not in links[at].prices)]
    if any(links[at].key != unsaid.key for at in charged):
        return 0, -1
    return tied[0], tied[-1]


def _runs(prices: PossiblePrices, most: int) -> tuple[tuple[int, int], ...]:
    """Prices of 1 to `most` credits as runs: to be charged nothing is not to be charged."""
    if isinstance(prices, CreditRange):
        low, high = max(1, prices.low), most if prices.high is None else min(most, prices.high)
        return ((low, high),) if low <= high else ()
    runs: list[tuple[int, int]] = []
    for price in sorted(price for price in prices if 1 <= price <= most):
        if runs and runs[-1][1] == price - 1:
            runs[-1] = (runs[-1][0], price)
        else:
            runs.append((price, price))
    return tuple(runs)


def _highest(prices: PossiblePrices) -> int | None:
    return prices.high if isinstance(prices, CreditRange) else max(prices, default=0)


def _may_hide_an_addition(case: _Case, trust: AccountAssumptions) -> str | None:
    """Why credits may have been added unseen, or None if they cannot have been.

    Seen is the sum alone: what was added must have been spent again, by uncertain charges if by nobody else.
    """
    if trust.min_unreported_addition is None:
        return None
    if not trust.sole_spender:
        return "Others may have spent what may have been added: no balance proves anything then."
    unsaid = [one.prices for one in case.window.uncertain]
    unsaid += [one.prices for one in case.window.answers if one.paid is None]
    highest = [_highest(prices) for prices in unsaid]
    most = None if None in highest else sum(high or 0 for high in highest)
    if most is not None and most < case.missing + trust.min_unreported_addition:
        return None
    return f"{trust.min_unreported_addition} credits or more may have been added and charged unseen."


def _all_ambiguous(window: BalanceWindow, expected: int, missing: int, why: str, *, rose: int = 0) -> Reconciliation:
    verdicts = tuple(
        ChargeVerdict(one.key, ProofOutcome.AMBIGUOUS, even_if_others_spend=True, proof=why) for one in window.uncertain
    )
    return Reconciliation(expected, missing, verdicts, rose=rose, notes=(why,))


def _judge(case: _Case, trust: AccountAssumptions, most_work_bits: int) -> Reconciliation:
    """The proof itself: what all ways of explaining the missing credits have in common."""
    bins = [segment.missing for segment in case.stretches]
    shared = possibilities(bins, case.items, exact=False, most_work_bits=most_work_bits)
    alone = possibilities(bins, case.items, exact=True, most_work_bits=most_work_bits) if trust.sole_spender else None
    notes = []
    if shared is not None and case.items and not any(one.out or one.placed for one in shared):
        why = "The answers do not fit the balances: a charge that must have happened has no room."
        return _all_ambiguous(case.window, case.expected, case.missing, why, rose=1)
    gaps = tuple(_gap(case, k, most_work_bits) for k in range(min(len(bins), MAX_GAPS)))
    first = min((item.bins.start for item in case.items if item.bins), default=len(bins))
    foreign = sum(gap.unexplained for gap in gaps) + sum(bins[MAX_GAPS : max(first, MAX_GAPS)])
    if alone is not None and bins and not any(one.out or one.placed for one in alone):
        alone, foreign = None, max(1, foreign)
        notes.append("No set of our own charges adds up to what is missing: others spent, or a request is not named.")
    elif trust.sole_spender and alone is None:
        notes.append("There are too many combinations of charges to tell them apart.")
    if foreign:
        notes.append(f"Others spent {foreign} credits or more.")
    start, verdicts = len(case.unsaid), []
    for at, one in enumerate(case.window.uncertain):
        item = case.uncertain[at]
        in_any = (
            ItemPossibilities(out=True, placed=bool(item.bins and item.prices))
            if shared is None
            else shared[start + at]
        )
        verdicts.append(_verdict(case, one.key, in_any, None if alone is None else alone[start + at]))
    return Reconciliation(case.expected, case.missing, tuple(verdicts), gaps, foreign, notes=tuple(notes))


def _gap(case: _Case, k: int, most_work_bits: int) -> BalanceGap:
    segment = case.stretches[k]
    fitting = [item.prices for item in case.items if k in item.bins]
    candidates = tuple(
        one.key
        for one, item in zip(case.window.uncertain, case.uncertain, strict=True)
        if k in item.bins and item.prices and item.prices[0][0] <= segment.missing
    )
    return BalanceGap(segment, candidates, segment.missing - max_fill(segment.missing, fitting, most_work_bits))


def _verdict(case: _Case, key: int, in_any: ItemPossibilities, alone: ItemPossibilities | None) -> ChargeVerdict:
    """`in_any`: what is possible whoever spends; `alone`: if nobody else does, None if that is not known."""
    window = case.window
    sums = (
        f"{window.opening} at first, {case.expected} expected after {len(window.answers)} answers, "
        f"{window.closing[1]} read twice: {case.missing} missing."
    )
    if not in_any.placed:
        why = "Nothing is missing" if not case.stretches else "No gap it can lie in has room for its price"
        return ChargeVerdict(
            key, ProofOutcome.UNPAID, even_if_others_spend=True, proof=f"{sums} {why}: it was not charged."
        )
    if alone is not None and not alone.placed:
        why = "Only without it our charges add up to that: it was not charged, if nobody else spends."
        return ChargeVerdict(key, ProofOutcome.UNPAID, even_if_others_spend=False, proof=f"{sums} {why}")
    if alone is not None and not alone.out:
        why = "Only with it our charges add up to that: it was charged, if nobody else spends."
        return ChargeVerdict(key, ProofOutcome.PAID, even_if_others_spend=False, proof=f"{sums} {why}")
    why = "With it and without it this can be explained: nothing is proven."
    return ChargeVerdict(key, ProofOutcome.AMBIGUOUS, even_if_others_spend=True, proof=f"{sums} {why}")
