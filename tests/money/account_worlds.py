"""Simulated accounts with known true charges: lost answers, other spenders, added credits, late balances."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from lightmeter.journal.balance_proofs import BalanceReading, SubmissionResolution, WindowSubmission
from lightmeter.journal.submission_states import State
from lightmeter.money.lost_answer_charges import build_proof

KINDS = (
    "one at a time, last lost",
    "one at a time, several failed",
    "one at a time, others spend",
    "sole spender",
    "others spend, known",
    "others spend, denied",
    "credits added",
    "late balances",
    "charges not final",
)
"""What happens to the account. Others spend, denied: the user says that nobody else spends, which is wrong."""

MAX_HOLD = 9
MAX_REQUESTS = 14
MIN_ADDITION = MAX_HOLD * MAX_REQUESTS
"""More than all requests can cost, so that an addition always shows as a rise of the balance."""

HORIZON = 1000
"""Time units, which are also positions in the journal, in which everything happens."""


@dataclass(frozen=True)
class World:
    """A simulated account: what the journal knows, what the user says, and the true charges."""

    opening: int
    closing: tuple[int, int]
    submissions: tuple[WindowSubmission, ...]
    sole_spender: bool
    charged: dict[int, int]
    foreign: int
    added: int

    def prove(self) -> tuple[dict[str, Any], list[SubmissionResolution]]:
        """Return the proof that lightmeter builds from this world."""
        opening = BalanceReading(1, 0.0, self.opening, 0)
        readings = tuple(
            BalanceReading(number, number, balance, 2 * HORIZON) for number, balance in enumerate(self.closing, 2)
        )
        return build_proof(opening, readings, self.submissions, sole_spender=self.sole_spender)

    def wrong(self, document: dict[str, Any]) -> set[int]:
        """Return the ids of the submissions whose verdict in the proof contradicts the true charge."""
        verdicts = {one["submission_id"]: one["verdict"] for one in document["verdicts"]}
        return {
            key
            for key, verdict in verdicts.items()
            if verdict == ("proven_unpaid" if self.charged[key] else "proven_paid")
        }


@dataclass(frozen=True)
class _Request:
    key: int
    state: State
    hold: int
    price: int
    sent: int
    charge_at: int
    answered_at: int


def _request(random: Random, key: int, state: State, sent: int, took: int) -> _Request:
    hold = random.randint(1, MAX_HOLD)
    charged = state in (State.SETTLED, State.PROVEN_PAID_LOST) or random.random() < 0.5
    if state is State.PLANNED and random.random() < 0.9:  # a throttled request is charged only by a faulty service
        charged = False
    price = random.choice([0, 1, hold, random.randint(0, hold)]) if state is State.SETTLED else random.randint(1, hold)
    return _Request(key, state, hold, price * charged, sent, sent + random.randint(1, took - 1), sent + took)


def _requests(random: Random, kind: str) -> list[_Request]:
    sequential = kind.startswith("one at a time")
    longest = 2 if sequential else random.choice([30, 300])
    clock, requests, count = 1, [], random.randint(1, MAX_REQUESTS)
    rare = [State.UNCERTAIN, State.UNCERTAIN, State.AMBIGUOUS, State.CHARGE_UNKNOWN]
    rare += [State.WRITTEN_OFF, State.PROVEN_PAID_LOST, State.PLANNED, State.VOIDED]
    for key in range(count):
        state = random.choice(rare) if random.random() < 0.35 else State.SETTLED
        if sequential:
            failed = "last lost" not in kind and random.random() < 0.35
            state = State.CHARGE_UNKNOWN if failed else State.SETTLED
            if key == count - 1:
                state = random.choice([State.UNCERTAIN, state])
        requests.append(_request(random, key, state, clock, random.randint(2, longest)))
        clock += 3 if sequential else random.randint(1, HORIZON // 20)
    return requests


def _movements(random: Random, kind: str) -> list[tuple[int, int]]:
    """Return (time, credits) pairs of what others spend (negative) and what is added (positive)."""
    times = [random.randrange(HORIZON) for _ in range(random.randint(1, 3))]
    if "others" in kind and random.random() < 0.8:
        scale = 3 * MAX_REQUESTS if "one at a time" in kind else HORIZON
        return [(at % scale, -random.randint(1, 9)) for at in times]
    if kind == "credits added" and random.random() < 0.8:
        return [(at, MIN_ADDITION + random.choice([0, 10, 60, 500])) for at in times]
    return []


def _submission(random: Random, one: _Request, remaining: int, omission_rate: float) -> WindowSubmission:
    settled = one.state is State.SETTLED
    says_charge = not settled or random.random() >= omission_rate
    return WindowSubmission(
        submission_id=one.key,
        state=one.state,
        hold=one.hold,
        paid=(one.price if says_charge else one.hold) if settled or one.state is State.PROVEN_PAID_LOST else None,
        remaining=remaining if settled and random.random() >= 2 * omission_rate else None,
        charge_reported=says_charge,
        sent=one.sent,
        answered=one.answered_at if one.state in (State.SETTLED, State.CHARGE_UNKNOWN) else None,
        throttled=one.state is State.PLANNED,
    )


def make_world(seed: int, kind: str) -> World:
    """Return a random world of this kind; the same seed gives the same world."""
    random = Random(seed)  # noqa: S311 (a simulation, no secret)
    requests, moves = _requests(random, kind), _movements(random, kind)
    charged = {one.key: one.price if one.state is not State.VOIDED else 0 for one in requests}
    events = [(one.charge_at, one.key, -charged[one.key]) for one in requests]
    events += [(at, -1, credits_) for at, credits_ in moves]
    random.shuffle(events)
    opening = balance = random.choice([200, 1000])
    history, after = [], {}
    for at, key, credits_ in sorted(events, key=lambda event: event[0]):
        balance += credits_
        after[key] = balance
        history.append((at, balance))
    if kind == "late balances":  # the service reports the balance of the moment at which it answers
        after = {
            one.key: next((then for at, then in reversed(history) if at <= one.answered_at), opening)
            for one in requests
        }
    omission_rate = 0.0 if "last lost" in kind else 0.05
    closing = (balance + random.randint(1, 5) if kind == "charges not final" else balance, balance)
    return World(
        opening=opening,
        closing=closing,
        submissions=tuple(_submission(random, one, after[one.key], omission_rate) for one in requests),
        sole_spender=kind not in ("others spend, known", "one at a time, others spend"),
        charged=charged,
        foreign=-sum(credits_ for _, credits_ in moves if credits_ < 0),
        added=sum(credits_ for _, credits_ in moves if credits_ > 0),
    )
