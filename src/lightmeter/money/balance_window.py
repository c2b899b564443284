"""Build a balance window, for proofs and statements alike, from the submissions in the journal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from lightmeter.journal.balance_proofs import WindowSubmission
from lightmeter.journal.submission_states import HOLDING, State
from lightmeter.pricing.charge_inference import AnsweredRequest, BalanceWindow, UncertainRequest

_CHARGED: Final = frozenset({State.SETTLED, State.PROVEN_PAID_LOST})


def balance_window(opening: int, closing: tuple[int, int], submissions: Sequence[WindowSubmission]) -> BalanceWindow:
    """Return the window between two balances.

    A request that the service refused as too fast (429) should cost nothing. It counts as uncertain, so that the
    balances show whether it was charged all the same.

    Args:
        opening: The balance before the first submission, in credits.
        closing: Two balances after the last submission, read while no request was in flight; they are equal.
        submissions: All submissions that were first sent between `opening` and `closing`.
    """
    answers, uncertain = [], []
    for one in submissions:
        if one.state in _CHARGED:
            reported = one.charge_reported or one.state is State.PROVEN_PAID_LOST
            paid = one.paid if reported else None
            answers.append(AnsweredRequest(one.submission_id, one.hold, paid, one.remaining, one.sent))
        elif one.state in HOLDING or one.throttled:
            uncertain.append(UncertainRequest(one.submission_id, one.hold, one.sent))
    return BalanceWindow(opening, closing, tuple(answers), tuple(uncertain), _is_sequential(submissions))


def _is_sequential(submissions: Sequence[WindowSubmission]) -> bool:
    """Whether each submission was answered before the next was sent; a request without an answer never was."""
    by_send = sorted(submissions, key=lambda one: one.sent)
    return all(before.answered is not None and before.answered < after.sent for before, after in pairwise(by_send))
