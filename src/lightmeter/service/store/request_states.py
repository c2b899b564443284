"""States of a request at the service, and the table of transitions between them.

::

    running ─complete→ completed
       │ ─fail→ failed
       │ ─cancel→ failed         (the operator cancelled it)
       │ ─interrupt→ queued      (its process ended; the request runs again)
    queued ─start→ running
       │ ─cancel→ failed
       │ ─give_up→ failed        (its process crashed repeatedly while it ran only this request)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lightmeter.errors import InvalidTransition


class JobState(StrEnum):
    """State of a request: queued, running, completed or failed. The values are stored in the database."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class JobEvent(StrEnum):
    """Event that changes the state of a request, such as `start` or the operator's `cancel`."""

    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    INTERRUPT = "interrupt"
    GIVE_UP = "give_up"
    CANCEL = "cancel"


TRANSITIONS: Final[dict[tuple[JobState, JobEvent], JobState]] = {
    (JobState.QUEUED, JobEvent.START): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.COMPLETE): JobState.COMPLETED,
    (JobState.RUNNING, JobEvent.FAIL): JobState.FAILED,
    (JobState.RUNNING, JobEvent.INTERRUPT): JobState.QUEUED,
    (JobState.QUEUED, JobEvent.GIVE_UP): JobState.FAILED,
    (JobState.QUEUED, JobEvent.CANCEL): JobState.FAILED,
    (JobState.RUNNING, JobEvent.CANCEL): JobState.FAILED,
}

FINISHED: Final = frozenset({JobState.COMPLETED, JobState.FAILED})


def step(state: JobState, event: JobEvent) -> JobState:
    """Return the state after `event`.

    Raises:
        InvalidTransition: `TRANSITIONS` does not allow `event` in `state`.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(f"A request that is {state} has no step {event!r}.") from None
