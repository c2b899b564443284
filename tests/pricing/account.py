"""An account whose truth is known: random requests, lost answers, other spenders, additions, late balances."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from lightmeter.pricing.balance_chain import AnsweredRequest, PossiblePrices, UncertainRequest
from lightmeter.pricing.charge_inference import AccountAssumptions, BalanceWindow, ProofOutcome, Reconciliation
from lightmeter.pricing.estimate import CreditRange

KINDS = (
    "one at a time",
    "sole spender",
    "others spend, said",
    "others spend, denied",
    "credits added, possible",
    "credits added, said",
    "credits added, unsaid",
    "late balances, said",
    "charges not final",
)
"""What a world is like, and whether the one who reconciles was told; denied: told that it is not so."""

HORIZON = 1000
LEAST_ADDITION = 40


@dataclass
class World:
    """What was seen, what is taken for granted, and what is true."""

    window: BalanceWindow
    trust: AccountAssumptions
    charged: dict[int, int] = field(default_factory=dict)
    foreign: int = 0
    added: int = 0

    def wrong(self, found: Reconciliation) -> list[int]:
        """Keys whose verdict is not the truth."""
        return [
            one.key
            for one in found.verdicts
            if (one.proven is ProofOutcome.UNPAID and self.charged[one.key] > 0)
            or (one.proven is ProofOutcome.PAID and self.charged[one.key] == 0)
        ]


@dataclass
class _Request:
    key: int
    prices: PossiblePrices
    price: int
    sent: int
    charge_at: int
    answered_at: int
    lost: bool
    charged: bool


def _request(random: Random, key: int, clock: int, width: int) -> _Request:
    shape = random.random()
    if shape < 0.5:
        price = random.randint(1, 9)
        prices: PossiblePrices = frozenset({price})
    elif shape < 0.75:
        prices = frozenset(random.sample(range(12), random.randint(1, 3)))
        price = random.choice(sorted(prices))
    else:
        low = random.randint(0, 6)
        prices = CreditRange(low, None if random.random() < 0.1 else low + random.randint(0, 8))
        price = random.randint(low, low + 8 if prices.high is None else prices.high)
    took = random.randint(2, width)
    charge_at = clock + random.randint(1, took - 1)
    lost = random.random() < 0.3
    charged = not lost or random.random() < 0.5
    return _Request(key, prices, price, clock, charge_at, clock + took, lost, charged)


def _movements(random: Random, kind: str) -> list[tuple[int, int]]:
    """What others spend (below 0) and what is added (above 0), with when."""
    times = [random.randrange(HORIZON) for _ in range(random.randint(1, 3))]
    if kind.startswith("others"):
        return [(at, -random.randint(1, 9)) for at in times]
    if kind.startswith("credits") and random.random() < 0.8:
        return [(at, LEAST_ADDITION + random.choice([0, 10, 60, 500])) for at in times]
    return []


def make_world(seed: int, kind: str) -> World:
    """A world of this kind, the same for the same seed."""
    random = Random(seed)  # noqa: S311 (dice, no secret)
    width = 2 if kind == "one at a time" else random.choice([2, 30, 300])  # or many in flight
    clock, requests = 0, []
    for key in range(random.randint(1, 14)):
        requests.append(_request(random, key, clock, width))
        clock += random.randint(1, max(1, HORIZON // 20)) if width > 2 else 3
    moves = _movements(random, kind)
    events = [(one.charge_at, one.key, -one.price) for one in requests if one.charged]
    events += [(at, -1, credits_) for at, credits_ in moves]
    random.shuffle(events)
    events.sort(key=lambda event: event[0])
    opening = balance = random.choice([200, 1000])
    after, history = {}, []
    for at, key, credits_ in events:
        balance += credits_
        after[key] = balance
        history.append((at, balance))
    window = _seen(random, requests, after, (opening, balance))
    if kind == "one at a time":
        window = _careful(window, requests, history)
    if kind.startswith("late"):
        window = _late(window, requests, history)
    if kind == "charges not final":
        closing = (balance + random.randint(1, 5), balance)
        window = replace(window, closing=closing)
    added = sum(credits_ for _, credits_ in moves if credits_ > 0)
    charged = {one.key: one.price * one.charged for one in requests}
    return World(window, _trust(kind, added), charged, -sum(c for _, c in moves if c < 0), added)


def _trust(kind: str, added: int) -> AccountAssumptions:
    return {
        "others spend, said": AccountAssumptions(answers_form_chain=True),
        "credits added, possible": AccountAssumptions(
            sole_spender=True, min_unreported_addition=LEAST_ADDITION, answers_form_chain=True
        ),
        "credits added, said": AccountAssumptions(sole_spender=True, added=added),
        "late balances, said": AccountAssumptions(sole_spender=True),
    }.get(kind, AccountAssumptions(sole_spender=True, answers_form_chain=True))


def _seen(random: Random, requests: list[_Request], after: dict[int, int], ends: tuple[int, int]) -> BalanceWindow:
    """What the client knows of it: in no order, with gaps in what is said."""
    timed = random.random() < 0.7
    answers, uncertain = [], []
    for one in requests:
        sent = one.sent if timed and random.random() < 0.9 else None
        if one.lost:
            uncertain.append(UncertainRequest(one.key, one.prices, sent))
            continue
        answered = one.answered_at if timed and random.random() < 0.9 else None
        paid = None if random.random() < 0.05 else one.price
        remaining = None if random.random() < 0.1 else after[one.key]
        answers.append(AnsweredRequest(one.key, paid, remaining, one.prices, sent, answered))
    random.shuffle(answers)
    random.shuffle(uncertain)
    return BalanceWindow(ends[0], (ends[1], ends[1]), tuple(answers), tuple(uncertain))


def _balance_at(history: list[tuple[int, int]], opening: int, moment: int) -> int:
    return next((balance for at, balance in reversed(history) if at <= moment), opening)


def _careful(window: BalanceWindow, requests: list[_Request], history: list[tuple[int, int]]) -> BalanceWindow:
    """Everything is said, and after each lost request the balance is read, which is an answer that paid nothing."""
    uncertain = [UncertainRequest(one.key, one.prices, one.sent, one.answered_at - 1) for one in requests if one.lost]
    answers = []
    for one in requests:
        balance = _balance_at(history, window.opening, one.answered_at)
        key, paid = (one.key + 1000, 0) if one.lost else (one.key, one.price)
        sent = one.answered_at if one.lost else one.sent
        answers.append(AnsweredRequest(key, paid, balance, one.prices, sent, one.answered_at))
    return replace(window, answers=tuple(answers), uncertain=tuple(uncertain))


def _late(window: BalanceWindow, requests: list[_Request], history: list[tuple[int, int]]) -> BalanceWindow:
    """The service says the balance of the moment it answers."""
    balances = {one.key: _balance_at(history, window.opening, one.answered_at) for one in requests}
    return replace(window, answers=tuple(replace(one, remaining=balances[one.key]) for one in window.answers))
