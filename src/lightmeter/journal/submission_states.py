"""The life cycle of a submission: one POST, from the decision to send it until its charge is known.

The module is a literal table of (state, event) → state, without I/O. `step` raises an error for a pair that is not in
the table, because a wrong state would make the sums of credits wrong.

- An `acked` submission (accepted, to be polled for) can still lose its answer, and become `uncertain`.
- An `ambiguous` submission may have been charged, and no balance of the account could prove it. A later balance can.
- `charge_unknown`: the request failed and its answer reports no charge. It may have been charged.
- An answer that an older version could not read makes the submission `answered` when a newer version can read it. If
  the service acknowledged the submission and still has the answer, it becomes `acked` again, and is polled for.
- `pay_again` sends the rows again in a new submission. The credits of the old one stay reserved; if it was proven to
  be charged, they stay paid.

A state in parentheses is drawn elsewhere in the diagram. "(the same)" means that the state stays `proven_paid_lost`.

::

    planned ─hold→ held ─send→ sent ─┬─answer→ answered ─┬─settle→ settled
       ↑                             │                   └─fail→ charge_unknown ─┬─prove_paid→ (settled)
       │                             │                                           └─prove_unpaid→ (voided)
       │                             ├─acknowledge→ acked ─collect→ polled ─settle→, ─fail→ (as answered)
       │                             ├─refuse→ refused ─void→ voided
       ├───────────unreached, throttle┤
       │                             └─lose→ uncertain ─┬─ask_again→ (sent)
       │                                                ├─answer→ (answered)
       │                                                ├─acknowledge→ (acked)
       └──────────────────────────────────prove_unpaid──┤
                                                        ├─prove_paid→ proven_paid_lost ─pay_again→ (the same)
                                                        └─give_up→ ambiguous ─pay_again→ written_off
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from lightmeter.errors import InvalidTransition


class State(StrEnum):
    """State of a submission (one POST to the service), such as `sent` or `answered`, as stored in the journal."""

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
    """What happens to a submission (one POST to the service) and changes its state, as stored in the journal."""

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
    (State.UNCERTAIN, Event.ACKNOWLEDGE): State.ACKED,
    (State.UNCERTAIN, Event.PROVE_UNPAID): State.PLANNED,
    (State.UNCERTAIN, Event.PROVE_PAID): State.PROVEN_PAID_LOST,
    (State.UNCERTAIN, Event.GIVE_UP): State.AMBIGUOUS,
    (State.AMBIGUOUS, Event.ANSWER): State.ANSWERED,
    (State.AMBIGUOUS, Event.ACKNOWLEDGE): State.ACKED,
    (State.AMBIGUOUS, Event.PROVE_UNPAID): State.PLANNED,
    (State.AMBIGUOUS, Event.PROVE_PAID): State.PROVEN_PAID_LOST,
    (State.AMBIGUOUS, Event.PAY_AGAIN): State.WRITTEN_OFF,
    (State.PROVEN_PAID_LOST, Event.PAY_AGAIN): State.PROVEN_PAID_LOST,
}
"""(state, event) → the state that follows. Pairs that are not listed are errors."""

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
"""States in which credits are reserved in the budget: the request may have been charged, or may be charged later."""

IN_DOUBT: Final = frozenset({State.UNCERTAIN, State.AMBIGUOUS})
"""States in which the rows of a request are `in_doubt`: it was sent, no answer came, and its charge is unknown."""


def step(state: State, event: Event) -> State:
    """Return the state that a submission (one POST) in `state` has after `event`.

    Raises:
        InvalidTransition: the event is not allowed in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(f"A submission that is {state} has no step {event!r}.") from None
