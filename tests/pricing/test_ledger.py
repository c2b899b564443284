"""The cap holds whatever is asked of the ledger, in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lightmeter.errors import BudgetReached
from lightmeter.pricing.ledger import Ledger

BUDGET = 100
CREDITS = st.integers(0, 60)


class LedgerMachine(RuleBasedStateMachine):
    """Holds, settles and voids at random, against a list of what is open."""

    open_holds = Bundle("open_holds")

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(BUDGET)
        self.paid = 0
        self.held: list[int] = []

    @rule(target=open_holds, amount=CREDITS)
    def hold(self, amount):
        """A hold is taken exactly when it fits."""
        fits = self.paid + sum(self.held) + amount <= BUDGET
        assert self.ledger.can_hold(amount) is fits
        if not fits:
            with pytest.raises(BudgetReached):
                self.ledger.hold(amount)
            return 0
        self.ledger.hold(amount)
        self.held.append(amount)
        return amount

    @rule(held=consumes(open_holds), share=st.integers(0, 100))
    def settle(self, held, share):
        """Settling at most what was held never brings the sum over the budget."""
        paid = held * share // 100
        self.ledger.settle(held, paid)
        self.paid += paid
        if held:
            self.held.remove(held)

    @rule(held=consumes(open_holds))
    def void(self, held):
        """Voiding gives back all that was held."""
        self.ledger.void(held)
        if held:
            self.held.remove(held)

    @invariant()
    def under_the_cap(self):
        """Paid and held never pass the budget, and free is what is left."""
        assert self.ledger.paid + self.ledger.held <= BUDGET
        assert self.ledger.free == BUDGET - self.paid - sum(self.held)


TestLedgerMachine = LedgerMachine.TestCase


def test_without_a_budget_everything_fits():
    """No budget is no cap, and says so."""
    ledger = Ledger(None)
    ledger.hold(10**9)
    assert ledger.free is None
    assert ledger.can_hold(10**12)


def test_an_overcharge_is_written_down():
    """A charge above its hold counts in full and closes the budget; it is never hidden."""
    ledger = Ledger(10)
    ledger.hold(8)
    ledger.settle(8, 12)
    assert (ledger.paid, ledger.held, ledger.free) == (12, 0, 0)
    with pytest.raises(BudgetReached, match="1 credits do not fit: 0 of the budget of 10 are free"):
        ledger.hold(1)


def test_a_ledger_goes_on_from_what_was_paid_and_held():
    """After a stop the ledger starts with what the journal says is paid and held."""
    assert Ledger(100, paid=30, held=20).free == 50


@pytest.mark.parametrize("step", ["settle", "void"])
def test_releasing_more_than_is_held_is_a_bug(step):
    """A release without its hold raises and changes nothing."""
    ledger = Ledger(10, held=3)
    with pytest.raises(ValueError, match="3 are held"):
        ledger.settle(4, 1) if step == "settle" else ledger.void(4)
    assert (ledger.paid, ledger.held) == (0, 3)


def test_negative_amounts_are_a_bug():
    """No amount below zero is taken anywhere."""
    ledger = Ledger(10, held=3)
    for call in (
        lambda: Ledger(-1),
        lambda: ledger.hold(-1),
        lambda: ledger.settle(1, -1),
        lambda: ledger.void(-1),
    ):
        with pytest.raises(ValueError, match="below 0"):
            call()
