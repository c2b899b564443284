"""Prove from account balances whether requests without an answer were charged. Nothing is read or written here.

By default, other users may spend from the account. Then only one thing can be proven: if no credits are missing, the
requests were not charged. If the user says that nobody else spends from the account, missing credits can also prove
that a request was charged. But if the balances show that somebody else spent, nothing is proven, even if the user says
that nobody did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from lightmeter.journal.balance_proofs import BalanceReading, SubmissionResolution, WindowSubmission
from lightmeter.journal.submission_states import HOLDING, Event, State
from lightmeter.pricing.charge_inference import (
    AnsweredRequest,
    BalanceWindow,
    ChargeVerdict,
    ProofOutcome,
    Reconciliation,
    UncertainRequest,
    reconcile,
)

_CHARGED: Final = frozenset({State.SETTLED, State.PROVEN_PAID_LOST})
"""States of requests that were charged."""

_RESOLVABLE: Final = frozenset({State.UNCERTAIN, State.AMBIGUOUS, State.CHARGE_UNKNOWN})
"""States of requests whose charge a proof can decide."""

_FOREIGN: Final = "Somebody else spent from the account in the meantime: nothing is proven."
_NOTHING_ADDED: Final = "Nobody added credits to the account between the readings, or was given any back."
_FINAL: Final = "No charge comes later than the readings: they lie far enough after the last request."
_SOLE_SPENDER: Final = "Nobody else spent from the account between the readings, as the user said."
_SEQUENTIAL: Final = "One request at a time was in flight: each answer names the balance right after its charge."


def balance_window(opening: int, closing: tuple[int, int], submissions: Sequence[WindowSubmission]) -> BalanceWindow:
    """Divide the requests sent between two balances by whether their charge is known or uncertain.

    The result is the input of `reconcile`, which compares the charges with the balances. A request that the service
    refused because requests came too fast (429) should cost nothing. It counts as uncertain, so that the balances show
    whether it was charged.

    Args:
        opening: The balance before the first request, in credits.
        closing: Two equal balances after the last request, in credits, read while no request was in flight.
        submissions: All requests that were first sent between `opening` and `closing`.
    """
    answers, uncertain = [], []
    for one in submissions:
        if one.state in _CHARGED:
            reported = one.charge_reported or one.state is State.PROVEN_PAID_LOST
            paid = one.paid if reported else None
            answers.append(AnsweredRequest(one.submission_id, one.hold, paid, one.remaining, one.sent))
        elif one.state in HOLDING or one.throttled:
            uncertain.append(UncertainRequest(one.submission_id, one.hold, one.sent))
    by_send = sorted(submissions, key=lambda one: one.sent)
    one_at_a_time = all(a.answered is not None and a.answered < b.sent for a, b in pairwise(by_send))
    return BalanceWindow(opening, closing, tuple(answers), tuple(uncertain), one_at_a_time)


def build_proof(
    opening: BalanceReading,
    readings: tuple[BalanceReading, BalanceReading],
    submissions: Sequence[WindowSubmission],
    *,
    sole_spender: bool,
) -> tuple[dict[str, Any], list[SubmissionResolution]]:
    """Prove, from account balances before and after requests, which requests without an answer were charged.

    Return (the proof as a JSON document, the decisions to record). The document has the balances (`opening`,
    `readings`), the comparison (`expected`, `missing` and `unexplained`, as in `Reconciliation`), and what is proven
    about each request (`verdicts`). A decision says that a request was charged, or was not charged, or is given up: its
    charge stays unknown.

    Args:
        opening: The balance before the first of the requests.
        readings: Two equal balances after the last request, read while no request was in flight.
        submissions: All requests that were first sent between `opening` and `readings`.
        sole_spender: Whether the user says that nobody else spends from the account.
    """
    window = balance_window(opening.balance, (readings[0].balance, readings[1].balance), submissions)
    result = reconcile(window, sole_spender=sole_spender)
    by_id = {one.submission_id: one for one in submissions}
    resolutions = _resolutions(result, by_id)
    resolved = {one.submission_id: one for one in resolutions}
    verdicts = [_verdict_document(one, by_id[one.key], resolved.get(one.key)) for one in result.verdicts]
    assumptions = [_NOTHING_ADDED, _FINAL, *[_SOLE_SPENDER] * sole_spender, *[_SEQUENTIAL] * window.sequential]
    document = {
        "opening": asdict(opening),
        "readings": [asdict(one) for one in readings],
        "answers": len(window.answers),
        "charged": sum(one.paid or 0 for one in window.answers),
        "expected": result.expected,
        "missing": result.missing,
        "unexplained": result.unexplained,
        "foreign_at_least": result.foreign_at_least,
        "added_at_least": result.added_at_least,
        "taken_for_granted": assumptions,
        "verdicts": verdicts,
        "notes": [*result.notes, *_throttled_notes(result, by_id)],
    }
    return document, resolutions


def _verdict_document(
    verdict: ChargeVerdict, submission: WindowSubmission, resolution: SubmissionResolution | None
) -> dict[str, Any]:
    return {
        "submission_id": verdict.key,
        "held": submission.hold,
        "state_before": submission.state.value,
        "verdict": verdict.outcome.value,
        "done": None if resolution is None else resolution.event.value,
        "paid": None if resolution is None else resolution.paid,
        "even_if_others_spend": verdict.even_if_others_spend,
        "proof": verdict.proof,
    }


def unprovable_document(
    reading: BalanceReading, resolutions: Sequence[SubmissionResolution], why: str
) -> dict[str, Any]:
    """Return a JSON document that says why the account balance proves nothing about requests without an answer.

    A proof needs an earlier balance to compare with, and there is none. The document has the same fields as a document
    from `build_proof`, but its `verdicts` name only the request, the decision and the reason.

    Args:
        reading: The balance of the account.
        resolutions: The decision about each request without an answer, which says that nothing is proven.
        why: Why there is no earlier balance to compare with, as a sentence.
    """
    outcome = ProofOutcome.AMBIGUOUS.value
    verdicts = [
        {"submission_id": one.submission_id, "verdict": outcome, "done": one.event.value, "proof": why}
        for one in resolutions
    ]
    return {
        "opening": None,
        "readings": [asdict(reading)],
        "answers": 0,
        "charged": 0,
        "expected": None,
        "missing": None,
        "unexplained": None,
        "foreign_at_least": None,
        "added_at_least": None,
        "taken_for_granted": [],
        "verdicts": verdicts,
        "notes": [why],
    }


def _resolutions(result: Reconciliation, by_id: dict[int, WindowSubmission]) -> list[SubmissionResolution]:
    lost = [one for one in result.verdicts if by_id[one.key].state in _RESOLVABLE]
    if result.foreign_at_least or result.added_at_least:
        cause = _FOREIGN if result.foreign_at_least else result.notes[0]
        why = f"{cause} {result.missing} credits are missing."
        unknown = [one.key for one in lost if by_id[one.key].state is State.UNCERTAIN]
        return [SubmissionResolution(key, Event.GIVE_UP, why) for key in unknown]
    charged = [one.key for one in result.verdicts if one.outcome is ProofOutcome.PAID]
    all_proven = all(one.outcome is not ProofOutcome.AMBIGUOUS for one in result.verdicts)
    # An answer without a reported charge counts as if it had cost its hold: nobody else has cost these credits.
    paid = _split_charge(result.unexplained if all_proven else None, {key: by_id[key].hold for key in charged})
    resolutions = []
    for one in lost:
        if one.outcome is ProofOutcome.UNPAID:
            resolutions.append(SubmissionResolution(one.key, Event.PROVE_UNPAID, one.proof))
        elif one.outcome is ProofOutcome.PAID:
            resolutions.append(SubmissionResolution(one.key, Event.PROVE_PAID, one.proof, paid[one.key]))
        elif by_id[one.key].state is State.UNCERTAIN:
            resolutions.append(SubmissionResolution(one.key, Event.GIVE_UP, one.proof))
    return resolutions


def _split_charge(total: int | None, holds: dict[int, int]) -> dict[int, int]:
    """Split `total` credits over requests. Return submission id → credits.

    In the order of `holds`, each request gets all credits reserved for it, or fewer if otherwise less than 1 credit
    would be left for each later request. The last request gets the rest, whatever is reserved for it. If `total` is
    None, each request gets all credits reserved for it.

    Args:
        total: Credits to split, at least 1 for each request; or None.
        holds: Submission id → credits reserved for the request.
    """
    if total is None:
        return holds
    shares, left = {}, total
    for others, (key, hold) in zip(reversed(range(len(holds))), holds.items(), strict=True):
        shares[key] = max(1, min(hold, left - others)) if others else left
        left -= shares[key]
    return shares


def _throttled_notes(result: Reconciliation, by_id: dict[int, WindowSubmission]) -> list[str]:
    """Return sentences for the user about the requests that the service refused as too fast (429): were they charged?

    The list is empty if there are no such requests.

    Args:
        result: What the balances prove.
        by_id: Submission id → submission, for all requests that `result` is about.
    """
    throttled = [one for one in result.verdicts if by_id[one.key].throttled and by_id[one.key].state not in _RESOLVABLE]
    if not throttled:
        return []
    charged = [f"#{one.key}" for one in throttled if one.outcome is not ProofOutcome.UNPAID]
    if not charged:
        return [f"{len(throttled)} requests were refused for being too fast, and cost nothing."]
    return [f"Requests that were refused for being too fast may have been charged all the same: {', '.join(charged)}."]
