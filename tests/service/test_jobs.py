"""The states of a request at the service follow a table."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import InvalidTransition
from lightmeter.service.store.request_states import FINISHED, TRANSITIONS, JobEvent, JobState, step


@pytest.mark.parametrize(("state", "event"), list(product(JobState, JobEvent)))
def test_a_step_is_in_the_table_or_raises(state, event):
    """A transition that is not in the table raises."""
    if (state, event) in TRANSITIONS:
        assert step(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(InvalidTransition, match=state):
            step(state, event)


def test_an_end_is_an_end():
    """Completed, failed and cancelled are final, and every other state can reach one of them."""
    assert {state for state, _ in TRANSITIONS} == set(JobState) - FINISHED
    reaching = set(FINISHED)
    for _ in JobState:
        reaching |= {state for (state, _), after in TRANSITIONS.items() if after in reaching}
    assert reaching == set(JobState)


@given(st.lists(st.sampled_from(JobEvent), max_size=30))
def test_a_request_ends_at_most_once(events):
    """In any order of events a request completes or fails at most once."""
    state, ends = JobState.RUNNING, 0
    for event in events:
        if (state, event) in TRANSITIONS:
            state = step(state, event)
            ends += state in FINISHED
    assert ends <= 1
