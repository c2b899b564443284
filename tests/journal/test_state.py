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


def test_only_settled_and_voided_end_without_a_hold():
    """A submission that can go no further has been paid for, was refused, or keeps its hold because it is in doubt."""
    ends = set(State) - {before for before, _ in TRANSITIONS}
    assert ends == {State.SETTLED, State.VOIDED, State.PROVEN_PAID_LOST}
    assert ends & HOLDING == {State.PROVEN_PAID_LOST}
    assert IN_DOUBT <= HOLDING


def test_nothing_is_sent_without_a_hold():
    """The only way to `sent` leads through `held`."""
    assert {before for (before, _), after in TRANSITIONS.items() if after is State.SENT} == {State.HELD}
