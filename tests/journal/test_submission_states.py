"""The life cycle of a submission: a literal table, with reserved credits in every state that may be charged."""

from __future__ import annotations

from itertools import product

import pytest

from lightmeter.errors import InvalidTransition
from lightmeter.journal.submission_states import HOLDING, IN_DOUBT, TRANSITIONS, Event, State, step


def test_a_pair_that_is_not_in_the_table_raises():
    """A pair of state and event without a transition raises `InvalidTransition`."""
    for state, event in set(product(State, Event)) - set(TRANSITIONS):
        with pytest.raises(InvalidTransition):
            step(state, event)


def test_every_state_can_be_reached_from_planned():
    """Every state is reachable from `planned`."""
    reached = {State.PLANNED}
    while True:
        further = {after for (before, _), after in TRANSITIONS.items() if before in reached} | reached
        if further == reached:
            break
        reached = further
    assert reached == set(State)


def test_final_states_hold_nothing_except_written_off():
    """Final states are charged or voided and reserve nothing; only `written_off` still reserves credits."""
    ends = set(State) - {before for (before, _), after in TRANSITIONS.items() if after is not before}
    assert ends == {State.SETTLED, State.VOIDED, State.PROVEN_PAID_LOST, State.WRITTEN_OFF}
    assert ends & HOLDING == {State.WRITTEN_OFF}
    assert IN_DOUBT <= HOLDING


def test_a_hold_ends_only_by_charge_refusal_or_proof():
    """Only a charge, a refusal, an unprocessed request or a proof frees reserved credits."""
    releasing = {event for (before, event), after in TRANSITIONS.items() if before in HOLDING and after not in HOLDING}
    assert releasing == {
        Event.SETTLE,
        Event.REFUSE,
        Event.UNREACHED,
        Event.THROTTLE,
        Event.PROVE_UNPAID,
        Event.PROVE_PAID,
    }


def test_nothing_is_sent_without_a_hold():
    """Only states that reserve credits lead to `sent`."""
    befores = {before for (before, _), after in TRANSITIONS.items() if after is State.SENT}
    assert befores == {State.HELD, State.UNCERTAIN}
    assert befores <= HOLDING
