"""Infer from account balances whether requests that were sent, but have no answer, were charged.

Before a request is sent, credits are reserved for it: the most that it can cost. Credits are missing between two
balances if the balance fell by more than the sum of the charges that the answers in between report. Either requests
without an answer have cost the missing credits, or other users of the account have spent them. A request counts as
charged (or uncharged) only if it is so in every possible explanation of the balances; otherwise it stays ambiguous.

If other users may spend from the account, a request can only be proven uncharged, and only if no credits are missing.
If nobody else spends (`sole_spender`), a request is also proven charged if all other requests together cannot have cost
the missing credits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

MAX_GAPS: Final = 1000
"""Maximum number of `BalanceGap`s that a `Reconciliation` lists. Its sums and proofs include all gaps."""


class ProofOutcome(StrEnum):
    """What account balances prove about a request that was sent but has no answer: uncharged, charged, or neither."""

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
    """What `reconcile` infers charges from: some requests, and the account balances before and after them.

    Attributes:
        opening: The balance before the first request, in credits.
        closing: Two balances after the last request, in credits, read some time apart with no request in flight. They
            are equal if all charges are final.
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
    """What account balances prove about one uncertain request, that is, one that was sent but has no answer.

    Attributes:
        key: Number of the request in the journal.
        outcome: Whether the request was charged, was not charged, or neither is proven.
        even_if_others_spend: Whether `outcome` holds even if other users spend from the account.
        proof: The balances and charges that prove `outcome`, in words for the user.
    """

    key: int
    outcome: ProofOutcome
    even_if_others_spend: bool
    proof: str


@dataclass(frozen=True, slots=True)
class BalanceGap:
    """Two consecutive account balances between which credits are missing: no answered request explains their fall.

    Attributes:
        missing: Fall of the balance minus the most that the answered requests in between can have cost, in credits.
        candidates: Keys of requests without an answer that were sent before the later balance. Each may have cost the
            missing credits.
    """

    missing: int
    candidates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What account balances prove about requests that were sent but have no answer (uncertain requests).

    Attributes:
        expected: What the last balance would be, in credits, if no uncertain request had been charged.
        missing: Credits by which the last balance is below `expected`; negative if it is above.
        unexplained: Those of the missing credits that answered requests without a reported charge cannot have cost.
        verdicts: One for each uncertain request, in the order of `BalanceWindow.uncertain`.
        gaps: The first `MAX_GAPS` pairs of consecutive balances between which credits are unexplained.
        foreign_at_least: Credits that other users must have spent at least.
        added_at_least: Credits that must have been added to the account, or given back, at least.
        notes: Sentences that explain the result to the user.
    """

    expected: int
    missing: int
    unexplained: int
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
        unreported: Maximum credits that the answered requests without a reported charge can have cost.
        uncertain: The requests that were sent but have no answer.
    """

    missing: int
    unreported: int
    uncertain: tuple[UncertainRequest, ...]

    @property
    def unexplained(self) -> int:
        """Credits, 0 or more, that left the account and that answered requests cannot have cost.

        It is `missing` (the fall of the balance beyond the charges that answers report) minus `unreported`. Requests
        without an answer, or other users, spent these credits.
        """
        return max(0, self.missing - self.unreported)


def reconcile(window: BalanceWindow, *, sole_spender: bool = False) -> Reconciliation:
    """Find out from account balances which of the requests without an answer were charged.

    Args:
        window: The balances and the requests between them, with and without answers.
        sole_spender: Whether the user says that nobody else spends from the account. Ignored if the balances refute it.

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
        return _prove_nothing(window, segments, expected, why)
    added = max(-missing, *(-segment.missing for segment in segments))
    if added > 0:
        why = f"The balance rose by {added} credits or more: credits were added or given back."
        return _prove_nothing(window, segments, expected, why, added=added)
    return _judge(window, segments, expected, sole_spender=sole_spender)


def _segments(window: BalanceWindow) -> list[_Segment]:
    """Split the requests of `window`, in the order sent, into segments between two consecutive known balances.

    A segment ends at each answer that reports a balance, and the last one at the closing balance. If requests were in
    flight together, the balances in answers prove nothing: return one segment with all requests.
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


def _prove_nothing(
    window: BalanceWindow, segments: list[_Segment], expected: int, why: str, *, added: int = 0
) -> Reconciliation:
    verdicts = tuple(
        ChargeVerdict(one.key, ProofOutcome.AMBIGUOUS, even_if_others_spend=True, proof=why) for one in window.uncertain
    )
    missing, unexplained = expected - window.closing[1], sum(segment.unexplained for segment in segments)
    return Reconciliation(expected, missing, unexplained, verdicts, added_at_least=added, notes=(why,))


def _judge(window: BalanceWindow, segments: list[_Segment], expected: int, *, sole_spender: bool) -> Reconciliation:
    """Return what balances prove about requests without an answer, assuming that no credits were added to the account.

    The result says of each such request whether it was charged, was not charged, or may have been. A segment's field
    `missing` is how far the balance fell in it, less the known charges. The caller, `reconcile`, has made sure that
    this is 0 or more in each segment; a negative number would show that credits were added.

    Args:
        window: The balances and the requests between them.
        segments: The requests of `window`, split at each balance.
        expected: What the last balance would be if no request without an answer had been charged.
        sole_spender: Whether the user says that nobody else spends from the account.
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
    unexplained, notes = sum(segment.unexplained for segment in segments), (note,) if foreign else ()
    return Reconciliation(expected, missing, unexplained, in_order, _gaps(segments), foreign, notes=notes)


def _must_be_charged(segments: Sequence[_Segment]) -> set[int] | None:
    """Return the keys of the requests without an answer that must have been charged if nobody else spends.

    `segments` are the requests between consecutive balances, oldest first. Return None if all requests without an
    answer together cannot have cost the missing credits, which means that somebody else spent credits.

    A request must have been charged if there is a balance for which this is true: the other requests sent before this
    balance cannot have cost all credits that went missing before it, in all segments together. A request is charged
    only once. So a request that must have been charged before a balance explains no credits that go missing after it.
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
    """Return whether requests without an answer can have cost all credits that are missing between balances.

    `segments` are the requests between consecutive balances, oldest first. A gap is the part of a fall of the balance
    that charges of answered requests cannot explain.

    The search takes the gaps in order. It fills a gap with the smallest request that can have cost the whole gap. If no
    request is large enough, it takes the largest one, and goes on with the rest of the gap. Each request is used once.
    The search may miss an explanation, but it never finds a wrong one.
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
    """Return the verdict on the request `key`.

    `possible` is whether it can have been charged, and `needed` is whether it must have been charged.

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
        if segment.unexplained and len(gaps) < MAX_GAPS:
            gaps.append(BalanceGap(segment.unexplained, candidates))
    return tuple(gaps)
