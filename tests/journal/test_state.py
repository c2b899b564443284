"""The life of a submission is a literal table, and money is held exactly while it may be charged."""

from __future__ import annotations

from itertools import product

import pytest

from lightmeter.errors import InvalidTransition
from lightmeter.journal.state import HOLDING, IN_DOUBT, TRANSITIONS, Event, State, step


@pytest.mark.parametrize(("state", "event"), [pair for pair in product(State, Event) if pair not in TRANSITIONS])
def test_a_pair_that_is_not_in_the_table_raises(state, event):
    """No step is ever guessed."""
    with pytest.raises(InvalidTransition):
        step(state, event)


def test_every_state_can_be_reached_from_planned():
    """The table has no room without a door."""
    reached = {State.PLANNED}
    while True:
        further = {after for (before, _), after in TRANSITIONS.items() if before in reached} | reached
        if further == reached:
            break
        reached = further
    assert reached == set(State)


def test_what_goes_no_further_was_paid_refused_or_given_up():
    """An end has been paid for or was refused, and holds nothing; or it was written off, and what it may cost stays."""
    ends = set(State) - {before for (before, _), after in TRANSITIONS.items() if after is not before}
    assert ends == {State.SETTLED, State.VOIDED, State.PROVEN_PAID_LOST, State.WRITTEN_OFF}
    assert ends & HOLDING == {State.WRITTEN_OFF}
    assert IN_DOUBT <= HOLDING


def test_a_hold_ends_only_with_a_reason():
    """Money that may have been charged is let go by a charge, a refusal or a proof, and by nothing else."""
    lets_go = {event for (before, event), after in TRANSITIONS.items() if before in HOLDING and after not in HOLDING}
    assert lets_go == {
        Event.SETTLE,
        Event.REFUSE,
        Event.UNREACHED,
        Event.THROTTLE,
        Event.PROVE_UNPAID,
        Event.PROVE_PAID,
    }


def test_nothing_is_sent_without_a_hold():
    """The only ways to `sent` lead from states that hold the price."""
    befores = {before for (before, _), after in TRANSITIONS.items() if after is State.SENT}
    assert befores == {State.HELD, State.UNCERTAIN}
    assert befores <= HOLDING
