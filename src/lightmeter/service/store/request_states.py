"""States of a request at the service, and the table of transitions between them.

::

    running ─complete→ completed
       │ ─fail→ failed
       │ ─cancel→ cancelled      (by the operator; its client is told that it has failed)
       │ ─interrupt→ queued      (its process ended; the request runs again)
    queued ─start→ running
       │ ─cancel→ cancelled
       │ ─give_up→ failed        (its process crashed repeatedly while it ran only this request)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lightmeter.errors import InvalidTransition


class JobState(StrEnum):
    """State of a request. The values are stored in the database."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


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
    (JobState.QUEUED, JobEvent.CANCEL): JobState.CANCELLED,
    (JobState.RUNNING, JobEvent.CANCEL): JobState.CANCELLED,
}

FINISHED: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


def step(state: JobState, event: JobEvent) -> JobState:
    """Return the state after `event`.

    Raises:
        InvalidTransition: `TRANSITIONS` does not allow `event` in `state`.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(f"A request that is {state} has no step {event!r}.") from None
