"""The life of a request at the service: pure, a literal table.

::

    running ─settle→ completed
       │ ─fail→ failed
       │ ─interrupt→ queued      (the process ended; an acknowledged request is done again, a suspect alone)
    queued ─start→ running
       │ ─give_up→ failed        (its process died again and again while it did nothing else)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lightmeter.errors import InvalidTransition

__all__ = ["FINISHED", "TRANSITIONS", "JobEvent", "JobState", "step"]


class JobState(StrEnum):
    """Where a request stands."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class JobEvent(StrEnum):
    """What moves it."""

    START = "start"
    SETTLE = "settle"
    FAIL = "fail"
    INTERRUPT = "interrupt"
    GIVE_UP = "give_up"


TRANSITIONS: Final[dict[tuple[JobState, JobEvent], JobState]] = {
    (JobState.QUEUED, JobEvent.START): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.SETTLE): JobState.COMPLETED,
    (JobState.RUNNING, JobEvent.FAIL): JobState.FAILED,
    (JobState.RUNNING, JobEvent.INTERRUPT): JobState.QUEUED,
    (JobState.QUEUED, JobEvent.GIVE_UP): JobState.FAILED,
}

FINISHED: Final = frozenset({JobState.COMPLETED, JobState.FAILED})


def step(state: JobState, event: JobEvent) -> JobState:
    """The state after `event`.

    Raises:
        InvalidTransition: the table has no such step.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(f"A request that is {state} has no step {event!r}.") from None
