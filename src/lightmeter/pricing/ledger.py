"""The cap: a charge is allowed only while everything paid and everything held stays within the budget.

An amount is held before a request is sent and settled or voided once its outcome is known; what is uncertain
stays held. The journal keeps the truth on disk, this is the arithmetic it is checked with.
"""

from __future__ import annotations

from lightmeter.errors import BudgetReached

__all__ = ["Ledger"]


class Ledger:
    """Whole credits paid and held, against a budget.

    Attributes:
        budget: The cap, or None for no cap.
        paid: Credits charged so far; can pass the budget only if the service charged more than was held.
        held: Credits set aside for requests whose outcome is not known yet.
    """

    def __init__(self, budget: int | None, paid: int = 0, held: int = 0) -> None:
        for name, value in (("budget", budget or 0), ("paid", paid), ("held", held)):
            _check(name, value)
        self.budget = budget
        self.paid = paid
        self.held = held

    def __repr__(self) -> str:
        return f"Ledger(budget={self.budget}, paid={self.paid}, held={self.held})"

    @property
    def free(self) -> int | None:
        """Credits that can still be held, 0 or more; None when there is no cap."""
        if self.budget is None:
            return None
        return max(0, self.budget - self.paid - self.held)

    def can_hold(self, credits_: int) -> bool:
        """Whether so many credits fit under the cap beside all that is paid and held."""
        _check("credits", credits_)
        return self.free is None or credits_ <= self.free

    def hold(self, credits_: int) -> None:
        """Set credits aside before a request is sent.

        Raises:
            BudgetReached: they do not fit; nothing is held then.
        """
        if not self.can_hold(credits_):
            raise BudgetReached(
                f"{credits_} credits do not fit: {self.free} of the budget of {self.budget} are free.",
                hint="Raise the budget and resume.",
            )
        self.held += credits_

    def settle(self, held: int, paid: int) -> None:
        """End a hold with what was really charged, also when that is more than was held.

        Raises:
            ValueError: more is released than is held, or an amount is negative: a bug of the caller.
        """
        _check("paid", paid)
        self._release(held)
        self.paid += paid

    def void(self, held: int) -> None:
        """End a hold of a request that was not charged.

        Raises:
            ValueError: more is released than is held, or the amount is negative: a bug of the caller.
        """
        self._release(held)

    def _release(self, held: int) -> None:
        _check("held", held)
        if held > self.held:
            raise ValueError(f"{held} credits cannot be released, {self.held} are held.")
        self.held -= held


def _check(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{name}: {value} is below 0.")
