"""From two balances and the journal between them to what is done with each request without an answer: pure.

By default others may spend from the account too. Then only one thing is proven: where nothing at all is missing,
nothing was charged. Once the user says that nobody else spends, the sums also tell what was charged. Where they show
that somebody else did, nothing is proven, whatever was said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from lightmeter.journal.balance_proofs import BalanceReading, SubmissionResolution, WindowSubmission
from lightmeter.journal.state import Event, State
from lightmeter.pricing.balance_chain import AnsweredRequest, UncertainRequest
from lightmeter.pricing.charge_inference import (
    AccountAssumptions,
    BalanceWindow,
    ProofOutcome,
    Reconciliation,
    reconcile,
)
from lightmeter.pricing.estimate import CreditRange

__all__ = ["build_proof", "unprovable_document", "window_of"]

_JUDGED: Final = frozenset({State.UNCERTAIN, State.AMBIGUOUS, State.CHARGE_UNKNOWN})
_CHARGED: Final = frozenset({State.SETTLED, State.PROVEN_PAID_LOST})
_FOREIGN: Final = "Somebody else spent from the account in the meantime: nothing is proven."


def window_of(opening: int, closing: tuple[int, int], seen: Sequence[WindowSubmission]) -> BalanceWindow:
    """The submissions of a window as the proof sees them.

    A refusal for being too fast is presumed to cost nothing. Whether that is so is looked at like everything else: it
    may have taken what is missing.
    """
    answers, uncertain = [], []
    for one in seen:
        prices = CreditRange(0, one.hold)
        if one.state in _CHARGED:
            paid = one.paid if one.charge_reported or one.state is State.PROVEN_PAID_LOST else None
            answers.append(AnsweredRequest(one.submission_id, paid, one.remaining, prices, one.sent, one.answered))
        elif one.state in _JUDGED or one.state is State.WRITTEN_OFF or one.throttled:
            uncertain.append(UncertainRequest(one.submission_id, prices, one.sent))
    return BalanceWindow(opening, closing, tuple(answers), tuple(uncertain))


def _one_at_a_time(seen: Sequence[WindowSubmission]) -> bool:
    """Whether no two requests of a window can have been at work at the service together.

    Only then is a balance that an answer names the one right after its charge, whatever the service holds meanwhile.
    One that was lost may be at work until the window closes.
    """
    in_order = sorted(seen, key=lambda one: one.sent)
    return all(before.answered is not None and before.answered < after.sent for before, after in pairwise(in_order))


def build_proof(
    opening: BalanceReading,
    readings: tuple[BalanceReading, BalanceReading],
    seen: Sequence[WindowSubmission],
    *,
    sole_spender: bool,
) -> tuple[dict[str, Any], list[SubmissionResolution]]:
    """The proof as a document to keep, and a ruling for each request without an answer.

    Args:
        opening: The balance before the first request of the window.
        readings: Two equal balances after the last, with nothing in flight.
        seen: Every submission in between.
        sole_spender: Nobody else spends from the account, as the user says.
    """
    trust = AccountAssumptions(sole_spender=sole_spender, answers_form_chain=_one_at_a_time(seen))
    window = window_of(opening.balance, (readings[0].balance, readings[1].balance), seen)
    found = reconcile(window, trust)
    of_whom = {one.submission_id: one for one in seen}
    rulings = _rulings(found, of_whom)
    said = {one.submission_id: one for one in rulings}
    verdicts = [
        {
            "submission_id": one.key,
            "held": of_whom[one.key].hold,
            "state_before": of_whom[one.key].state.value,
            "verdict": one.proven.value,
            "done": said[one.key].event.value if one.key in said else None,
            "paid": said[one.key].paid if one.key in said else None,
            "even_if_others_spend": one.even_if_others_spend,
            "proof": one.proof,
        }
        for one in found.verdicts
    ]
    document = {
        "opening": asdict(opening),
        "readings": [asdict(one) for one in readings],
        "answers": len(window.answers),
        "charged": sum(one.paid or 0 for one in window.answers),
        "expected": found.expected,
        "missing": found.missing,
        "foreign_at_least": found.foreign,
        "added_at_least": found.rose,
        "taken_for_granted": _granted(trust),
        "verdicts": verdicts,
        "notes": [*found.notes, *_of_throttled(found, of_whom)],
    }
    return document, rulings


def unprovable_document(reading: BalanceReading, rulings: Sequence[SubmissionResolution], why: str) -> dict[str, Any]:
    """The document where there is nothing to compare a reading with; it has the fields of every other."""
    verdicts = [
        {
            "submission_id": one.submission_id,
            "verdict": ProofOutcome.AMBIGUOUS.value,
            "done": one.event.value,
            "proof": why,
        }
        for one in rulings
    ]
    return {
        "opening": None,
        "readings": [asdict(reading)],
        "answers": 0,
        "charged": 0,
        "expected": None,
        "missing": None,
        "foreign_at_least": None,
        "added_at_least": None,
        "taken_for_granted": [],
        "verdicts": verdicts,
        "notes": [why],
    }


def _granted(trust: AccountAssumptions) -> list[str]:
    granted = ["Nobody added credits to the account between the readings, or was given any back.", _FINAL]
    if trust.sole_spender:
        granted.append("Nobody else spent from the account between the readings, as the user said.")
    if trust.answers_form_chain:
        granted.append("One request at a time was in flight: each answer names the balance right after its charge.")
    return granted


_FINAL: Final = "No charge comes later than the readings: they lie far enough after the last request."


def _rulings(found: Reconciliation, of_whom: dict[int, WindowSubmission]) -> list[SubmissionResolution]:
    lost = [one for one in found.verdicts if of_whom[one.key].state in _JUDGED]
    if found.foreign or found.rose:
        why = f"{_FOREIGN if found.foreign else found.notes[0]} {found.missing} credits are missing."
        return [_given_up(one.key, why) for one in lost if of_whom[one.key].state is State.UNCERTAIN]
    charged = [one.key for one in found.verdicts if one.proven is ProofOutcome.PAID]
    exact = all(one.proven is not ProofOutcome.AMBIGUOUS for one in found.verdicts)
    paid = _shares(found.missing if exact else None, [(key, of_whom[key].hold) for key in charged])
    rulings = []
    for one in lost:
        if one.proven is ProofOutcome.UNPAID:
            rulings.append(SubmissionResolution(one.key, Event.PROVE_UNPAID, one.proof))
        elif one.proven is ProofOutcome.PAID:
            rulings.append(SubmissionResolution(one.key, Event.PROVE_PAID, one.proof, paid[one.key]))
        elif of_whom[one.key].state is State.UNCERTAIN:
            rulings.append(_given_up(one.key, one.proof))
    return rulings


def _given_up(key: int, why: str) -> SubmissionResolution:
    return SubmissionResolution(key, Event.GIVE_UP, why)


def _shares(total: int | None, holds: Sequence[tuple[int, int]]) -> dict[int, int]:
    """What each was charged: together `total`, if that is known, 1 or more each; else the most each can cost."""
    if total is None:
        return dict(holds)
    shares, left = {}, total
    for at, (key, hold) in enumerate(holds):
        others = len(holds) - at - 1
        shares[key] = left if not others else max(1, min(hold, left - others))
        left -= shares[key]
    return shares


def _of_throttled(found: Reconciliation, of_whom: dict[int, WindowSubmission]) -> list[str]:
    """What the balance says of requests that were refused for being too fast."""
    throttled = [one for one in found.verdicts if of_whom[one.key].state not in _JUDGED and of_whom[one.key].throttled]
    suspect = [one.key for one in throttled if one.proven is not ProofOutcome.UNPAID]
    if not throttled:
        return []
    if not suspect:
        return [f"{len(throttled)} requests were refused for being too fast, and cost nothing."]
    numbers = ", ".join(f"#{key}" for key in suspect)
    return [f"Requests that were refused for being too fast may have been charged all the same: {numbers}."]
