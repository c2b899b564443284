"""Infer from account balances which requests that were sent, but have no answer, were charged.

Before a request is sent, credits are reserved for it: the most that it can cost. Credits are missing between two
balances if the balance fell by more than the answers in between report as charges. Then requests without an answer
have cost the missing credits, or other users of the account have spent them. A request counts as charged or uncharged
only if every explanation of the balances says so; otherwise it stays ambiguous.

If other users may spend from the account, a request can only be proven uncharged, and only if no credits are missing.
If nobody else spends (`sole_spender`), a request is also proven charged if all other requests together cannot have
cost the missing credits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

MAX_GAPS: Final = 1000
"""Maximum number of `BalanceGap`s that a reconciliation lists; its sums and proofs include all."""


class ProofOutcome(StrEnum):
    """What account balances prove about a sent request without an answer: not charged, charged, or neither."""

    UNPAID = "proven_unpaid"
    PAID = "proven_paid"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that was answered and charged.

    Attributes:
        key: Number of the request in the journal.
        hold: Credits reserved for the request: the most that it can have cost.
        paid: Credits charged; None if the answer does not report them.
        remaining: The balance that the answer reports; None if it reports none.
        sent: Position in the order in which requests were sent.
    """

    key: int
    hold: int
    paid: int | None
    remaining: int | None
    sent: int


@dataclass(frozen=True, slots=True)
class UncertainRequest:
    """A request that was sent but has no answer; it may have been charged at any time after it was sent.

    Attributes:
        key: Number of the request in the journal.
        hold: Credits reserved for the request: the most that it can have cost.
        sent: Position in the order in which requests were sent.
    """

    key: int
    hold: int
    sent: int


@dataclass(frozen=True, slots=True)
class BalanceWindow:
    """Account balances before and after some requests, and these requests: what `reconcile` infers charges from.

    Attributes:
        opening: The balance before the first request, in credits.
        closing: Two later balances, read some time apart with no request in flight; equal if all charges are final.
        answers: Requests that were charged.
        uncertain: Requests that may have been charged.
        sequential: Whether no two requests were in flight together. Otherwise the balance that an answer reports may
            lack credits that the service reserves for other requests.
    """

    opening: int
    closing: tuple[int, int]
    answers: tuple[AnsweredRequest, ...] = ()
    uncertain: tuple[UncertainRequest, ...] = ()
    sequential: bool = False

    @property
    def requests(self) -> list[AnsweredRequest | UncertainRequest]:
        """The requests in `answers` and `uncertain`, in the order in which they were sent."""
        return sorted([*self.answers, *self.uncertain], key=lambda one: one.sent)


@dataclass(frozen=True, slots=True)
class ChargeVerdict:
    """What account balances prove about one uncertain request: one that was sent but has no answer.

    Attributes:
        key: Number of the request in the journal.
        outcome: Whether the request was charged.
        even_if_others_spend: Whether `outcome` is also true if other users spend from the account.
        proof: The balances and charges that prove `outcome`, in words for the user.
    """

    key: int
    outcome: ProofOutcome
    even_if_others_spend: bool
    proof: str


@dataclass(frozen=True, slots=True)
class BalanceGap:
    """Two consecutive account balances that differ by more than the charges that answers report between them.

    Attributes:
        missing: Fall of the balance minus these charges, in credits.
        candidates: Keys of the requests without an answer that were sent before the later balance: each may have cost
            the missing credits.
    """

    missing: int
    candidates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What account balances prove about requests that were sent but have no answer (uncertain requests).

    Attributes:
        expected: The last balance, in credits, if no uncertain request was charged.
        missing: Credits by which the last balance is below `expected`; negative if it is above.
        verdicts: One for each uncertain request, in the order of `BalanceWindow.uncertain`.
        gaps: The first `MAX_GAPS` pairs of consecutive balances between which credits are missing.
        foreign_at_least: Least number of credits that other users must have spent.
        added_at_least: Least number of credits that must have been added to the account.
        notes: Sentences for the user.
    """

    expected: int
    missing: int
    verdicts: tuple[ChargeVerdict, ...]
    gaps: tuple[BalanceGap, ...] = ()
    foreign_at_least: int = 0
    added_at_least: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Segment:
    """The requests between two consecutive account balances.

    Attributes:
        missing: Fall of the balance minus the charges that answers report, in credits; may be negative.
        unreported: Most credits that answered requests can have cost whose answers do not report the charge.
        uncertain: The requests that were sent but have no answer.
    """

    missing: int
    unreported: int
    uncertain: tuple[UncertainRequest, ...]

    @property
    def unexplained(self) -> int:
        """Credits in `missing` that answered requests cannot have cost: other requests or other users spent them."""
        return max(0, self.missing - self.unreported)


def reconcile(window: BalanceWindow, *, sole_spender: bool = False) -> Reconciliation:
    """Find out from account balances whether each request that was sent but has no answer was charged.

    Args:
        window: The balances and the requests between them, with and without answers.
        sole_spender: Whether nobody else spends from the account, as the user says; ignored if the balances refute it.

    Raises:
        ValueError: two requests in `window` have the same key.
    """
    keys = [one.key for one in window.requests]
    if len(keys) != len(set(keys)):
        raise ValueError("A request is in the window twice.")
    segments = _segments(window)
    missing = sum(segment.missing for segment in segments)
    expected = window.closing[1] + missing
    if window.closing[0] != window.closing[1]:
        before, now = window.closing
        why = f"The balance still changes ({before}, then {now}): not all charges are final."
        return _prove_nothing(window, expected, missing, why)
    added = max(-missing, *(-segment.missing for segment in segments))
    if added > 0:
        why = f"The balance rose by {added} credits or more: credits were added or given back."
        return _prove_nothing(window, expected, missing, why, added=added)
    return _judge(window, segments, expected, sole_spender=sole_spender)


def _segments(window: BalanceWindow) -> list[_Segment]:
    """Split the requests of `window`, in the order sent, at each answer that reports a balance.

    The last segment ends at the closing balance. If two requests were in flight together, balances in answers prove
    nothing: return one segment of all requests.
    """
    requests, segments, balance, first = window.requests, [], window.opening, 0
    for end, one in enumerate(requests, 1):
        if window.sequential and isinstance(one, AnsweredRequest) and one.remaining is not None:
            segments.append(_segment(balance - one.remaining, requests[first:end]))
            balance, first = one.remaining, end
    return [*segments, _segment(balance - window.closing[1], requests[first:])]


def _segment(fall: int, requests: Sequence[AnsweredRequest | UncertainRequest]) -> _Segment:
    answers = [one for one in requests if isinstance(one, AnsweredRequest)]
    return _Segment(
        missing=fall - sum(one.paid or 0 for one in answers),
        unreported=sum(one.hold for one in answers if one.paid is None),
        uncertain=tuple(one for one in requests if isinstance(one, UncertainRequest)),
    )


def _prove_nothing(window: BalanceWindow, expected: int, missing: int, why: str, *, added: int = 0) -> Reconciliation:
    verdicts = tuple(
        ChargeVerdict(one.key, ProofOutcome.AMBIGUOUS, even_if_others_spend=True, proof=why) for one in window.uncertain
    )
    return Reconciliation(expected, missing, verdicts, added_at_least=added, notes=(why,))


def _judge(window: BalanceWindow, segments: list[_Segment], expected: int, *, sole_spender: bool) -> Reconciliation:
    """Return what balances prove about requests without an answer, if no credits were added to the account.

    Args:
        window: The balances and the requests between them.
        segments: The requests of `window`, split at each balance.
        expected: What the last balance would be if no request without an answer had been charged.
        sole_spender: Whether nobody else spends from the account, as the user says.
    """
    charged = _must_be_charged(segments)
    capacities = accumulate(sum(one.hold for one in segment.uncertain) for segment in segments)
    # Missing credits that all requests sent so far cannot have cost.
    foreign = sum(max(0, segment.unexplained - most) for segment, most in zip(segments, capacities, strict=True))
    if sole_spender and charged is None:
        foreign = max(1, foreign)
    explained = sole_spender and not foreign and _can_explain_all(segments)
    most_missing = list(accumulate((segment.missing for segment in reversed(segments)), max))[::-1]  # from each on
    missing = expected - window.closing[1]
    sums = (
        f"Opening balance {window.opening}, {expected} expected after {len(window.answers)} answers, "
        f"{window.closing[1]} read twice: {missing} missing."
    )
    verdicts = {}
    for at, segment in enumerate(segments):
        for one in segment.uncertain:
            possible = min(one.hold, most_missing[at]) > 0
            needed = explained and one.key in (charged or ())
            verdicts[one.key] = _verdict(one.key, sums, possible=possible, needed=needed)
    in_order = tuple(verdicts[one.key] for one in window.uncertain)
    note = f"Others spent {foreign} credits or more: the requests of this run cannot have cost that."
    return Reconciliation(expected, missing, in_order, _gaps(segments), foreign, notes=(note,) if foreign else ())


def _must_be_charged(segments: Sequence[_Segment]) -> set[int] | None:
    """Return the keys of the requests without an answer that must have been charged if nobody else spends.

    `segments` are the requests between consecutive balances, oldest first. Return None if even all requests without an
    answer together cannot have cost the missing credits: then somebody else spent.

    A request must have been charged if, at some known balance, the other requests sent before that balance cannot have
    cost all credits missing until then. A request is charged only once, so it does not explain credits missing later.
    """
    charged: set[int] = set()
    available: list[UncertainRequest] = []
    unexplained = 0  # credits missing so far, beyond those that the requests in `charged` can have cost
    for segment in segments:
        available += segment.uncertain
        unexplained += segment.unexplained
        slack = sum(one.hold for one in available) - unexplained
        if slack < 0:
            return None
        used = [one for one in available if one.hold > slack]
        charged.update(one.key for one in used)
        available = [one for one in available if one.hold <= slack]
        unexplained = max(0, unexplained - sum(one.hold for one in used))
    return charged


def _can_explain_all(segments: Sequence[_Segment]) -> bool:
    """Return whether requests without an answer can have cost all gaps.

    `segments` are the requests between consecutive balances, oldest first. A gap is a fall of the balance beyond the
    reported charges.

    The search takes the gaps in order. It fills a gap with the smallest request that can have cost the rest of the gap;
    if there is none, with the largest request, and goes on with what is left. Each request is used once. The search may
    miss an explanation; it never finds a wrong one.
    """
    available: list[int] = []
    for segment in segments:
        available = sorted([*available, *(one.hold for one in segment.uncertain)])
        rest = segment.unexplained
        while rest > 0 and available:
            rest -= available.pop(min(bisect_left(available, rest), len(available) - 1))
        if rest > 0:
            return False
    return True


def _verdict(key: int, sums: str, *, possible: bool, needed: bool) -> ChargeVerdict:
    """Return the verdict on request `key`, which can (`possible`) or must (`needed`) have been charged.

    The proof in the verdict begins with `sums`, a sentence for the user that states the balances.
    """
    if not possible:
        proof = f"{sums} Nothing that it can have cost is missing: it was not charged."
        return ChargeVerdict(key, ProofOutcome.UNPAID, even_if_others_spend=True, proof=proof)
    if needed:
        proof = f"{sums} The other requests cannot have cost that: it was charged, if nobody else spends."
        return ChargeVerdict(key, ProofOutcome.PAID, even_if_others_spend=False, proof=proof)
    proof = f"{sums} That can be explained with this request and without it: nothing is proven."
    return ChargeVerdict(key, ProofOutcome.AMBIGUOUS, even_if_others_spend=True, proof=proof)


def _gaps(segments: Sequence[_Segment]) -> tuple[BalanceGap, ...]:
    gaps: list[BalanceGap] = []
    candidates: tuple[int, ...] = ()
    for segment in segments:
        candidates += tuple(one.key for one in segment.uncertain if one.hold)
        if segment.missing and len(gaps) < MAX_GAPS:
            gaps.append(BalanceGap(segment.missing, candidates))
    return tuple(gaps)
