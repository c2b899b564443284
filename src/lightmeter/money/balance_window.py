"""Build the balance window of a proof or a statement from the journal's submissions: the one place that does. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from lightmeter.journal.balance_proofs import WindowSubmission
from lightmeter.journal.state import HOLDING, State
from lightmeter.pricing.charge_inference import AnsweredRequest, BalanceWindow, UncertainRequest

__all__ = ["balance_window"]

_CHARGED: Final = frozenset({State.SETTLED, State.PROVEN_PAID_LOST})


def balance_window(opening: int, closing: tuple[int, int], submissions: Sequence[WindowSubmission]) -> BalanceWindow:
    """Return the window between two balances.

    A request that was refused as too fast (429) is presumed to cost nothing. It is uncertain all the same, so that the
    balances check the presumption.

    Args:
        opening: The balance before the first submission, in credits.
        closing: Two equal balances after the last, with nothing in flight.
        submissions: Every submission that was first sent between them.
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
    """Whether each submission was answered before the next was sent. A lost one may be at work until the end."""
    by_send = sorted(submissions, key=lambda one: one.sent)
    return all(before.answered is not None and before.answered < after.sent for before, after in pairwise(by_send))
