"""The life of a submission: one POST, from the decision to send it to the last credit of its charge.

Pure: a literal table of (state, event) → state. A pair that is not in it raises, because money hangs on it.
What is `acked` can be lost too. An `ambiguous` one can still be proven either way, once more is known of the account.
A request that failed and named no charge is `charge_unknown`: it may have been charged, and no balance has told yet.
What was lost because its bytes could not be read is `answered` by a version that can read them.
`pay_again` sends its rows again as a new submission: what this one may have been charged stays counted.

::

    planned ─hold→ held ─send→ sent ─┬─answer→ answered ─┬─settle→ settled
       ↑                             │                   └─fail→ charge_unknown ─┬─prove_paid→ (settled)
       │                             │                                           └─prove_unpaid→ (voided)
       │                             ├─acknowledge→ acked ─collect→ polled ─settle→, ─fail→ (as answered)
       │                             ├─refuse→ refused ─void→ voided
       ├───────────unreached, throttle┤
       │                             └─lose→ uncertain ─┬─ask_again→ (sent)
       │                                                ├─answer→ (answered)
       └──────────────────────────────────prove_unpaid──┤
                                                        ├─prove_paid→ proven_paid_lost ─pay_again→ (the same)
                                                        └─give_up→ ambiguous ─pay_again→ written_off
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lightmeter.errors import InvalidTransition

__all__ = ["HOLDING", "IN_DOUBT", "TRANSITIONS", "Event", "State", "step"]


class State(StrEnum):
    """Where a submission stands."""

    PLANNED = "planned"
    HELD = "held"
    SENT = "sent"
    ANSWERED = "answered"
    ACKED = "acked"
    POLLED = "polled"
    SETTLED = "settled"
    CHARGE_UNKNOWN = "charge_unknown"
    REFUSED = "refused"
    VOIDED = "voided"
    UNCERTAIN = "uncertain"
    PROVEN_PAID_LOST = "proven_paid_lost"
    AMBIGUOUS = "ambiguous"
    WRITTEN_OFF = "written_off"


class Event(StrEnum):
    """What moves it."""

    HOLD = "hold"
    SEND = "send"
    ANSWER = "answer"
    ACKNOWLEDGE = "acknowledge"
    COLLECT = "collect"
    SETTLE = "settle"
    FAIL = "fail"
    REFUSE = "refuse"
    VOID = "void"
    UNREACHED = "unreached"
    THROTTLE = "throttle"
    LOSE = "lose"
    ASK_AGAIN = "ask_again"
    PROVE_UNPAID = "prove_unpaid"
    PROVE_PAID = "prove_paid"
    GIVE_UP = "give_up"
    PAY_AGAIN = "pay_again"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.PLANNED, Event.HOLD): State.HELD,
    (State.HELD, Event.SEND): State.SENT,
    (State.SENT, Event.ANSWER): State.ANSWERED,
    (State.SENT, Event.ACKNOWLEDGE): State.ACKED,
    (State.SENT, Event.REFUSE): State.REFUSED,
    (State.SENT, Event.UNREACHED): State.PLANNED,
    (State.SENT, Event.THROTTLE): State.PLANNED,
    (State.SENT, Event.LOSE): State.UNCERTAIN,
    (State.ACKED, Event.COLLECT): State.POLLED,
    (State.ACKED, Event.LOSE): State.UNCERTAIN,
    (State.ANSWERED, Event.SETTLE): State.SETTLED,
    (State.POLLED, Event.SETTLE): State.SETTLED,
    (State.ANSWERED, Event.FAIL): State.CHARGE_UNKNOWN,
    (State.POLLED, Event.FAIL): State.CHARGE_UNKNOWN,
    (State.CHARGE_UNKNOWN, Event.PROVE_UNPAID): State.VOIDED,
    (State.CHARGE_UNKNOWN, Event.PROVE_PAID): State.SETTLED,
    (State.REFUSED, Event.VOID): State.VOIDED,
    (State.UNCERTAIN, Event.ASK_AGAIN): State.SENT,
    (State.UNCERTAIN, Event.ANSWER): State.ANSWERED,
    (State.UNCERTAIN, Event.PROVE_UNPAID): State.PLANNED,
    (State.UNCERTAIN, Event.PROVE_PAID): State.PROVEN_PAID_LOST,
    (State.UNCERTAIN, Event.GIVE_UP): State.AMBIGUOUS,
    (State.AMBIGUOUS, Event.ANSWER): State.ANSWERED,
    (State.AMBIGUOUS, Event.PROVE_UNPAID): State.PLANNED,
    (State.AMBIGUOUS, Event.PROVE_PAID): State.PROVEN_PAID_LOST,
    (State.AMBIGUOUS, Event.PAY_AGAIN): State.WRITTEN_OFF,
    (State.PROVEN_PAID_LOST, Event.PAY_AGAIN): State.PROVEN_PAID_LOST,
}

HOLDING: Final = frozenset(
    {
        State.HELD,
        State.SENT,
        State.ANSWERED,
        State.ACKED,
        State.POLLED,
        State.CHARGE_UNKNOWN,
        State.UNCERTAIN,
        State.AMBIGUOUS,
        State.WRITTEN_OFF,
    }
)
"""States in which the price is set aside: it may have been charged, or still be."""

IN_DOUBT: Final = frozenset({State.UNCERTAIN, State.AMBIGUOUS})
"""States whose rows are `in_doubt`: sent, no answer in hand, and nobody can say whether it was charged."""


def step(state: State, event: Event) -> State:
    """The state after `event`.

    Raises:
        InvalidTransition: the table has no such step.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(f"A submission that is {state} has no step {event!r}.") from None
