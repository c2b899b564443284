"""The balance proof is true in every case that explains the balances, and almost as sharp as any proof can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightmeter.pricing.charge_inference import (
    AnsweredRequest,
    BalanceWindow,
    ProofOutcome,
    UncertainRequest,
    reconcile,
)

UNPAID, PAID, AMBIGUOUS = ProofOutcome.UNPAID, ProofOutcome.PAID, ProofOutcome.AMBIGUOUS


def answered(key: int, paid: int | None, remaining: int | None = None, hold: int = 9) -> AnsweredRequest:
    return AnsweredRequest(key, hold, paid, remaining, sent=key)


def uncertain(key: int, hold: int) -> UncertainRequest:
    return UncertainRequest(key, hold, sent=key)


def window(closing: int, *requests: AnsweredRequest | UncertainRequest, sequential: bool = False) -> BalanceWindow:
    """A window that opens with 100 credits."""
    answers = tuple(one for one in requests if isinstance(one, AnsweredRequest))
    lost = tuple(one for one in requests if isinstance(one, UncertainRequest))
    return BalanceWindow(100, (closing, closing), answers, lost, sequential)


def outcomes(balances: BalanceWindow, *, alone: bool = False) -> dict[int, ProofOutcome]:
    return {one.key: one.outcome for one in reconcile(balances, sole_spender=alone).verdicts}


def test_nothing_missing_means_nothing_charged():
    """When the balance is as expected no uncertain request was charged, whoever else uses the account."""
    result = reconcile(window(91, answered(1, 9, 91), uncertain(2, 3), uncertain(3, 100)))
    assert [one.outcome for one in result.verdicts] == [UNPAID, UNPAID]
    assert all(one.even_if_others_spend for one in result.verdicts)
    assert result.verdicts[0].proof == (
        "Opening balance 100, 91 expected after 1 answers, 91 read twice: 0 missing. "
        "Nothing that it can have cost is missing: it was not charged."
    )


def test_all_missing_means_all_charged():
    """When all their holds together are missing, all were charged, if nobody else spends."""
    balances = window(83, answered(1, 9, 91), uncertain(2, 3), uncertain(3, 5))
    assert outcomes(balances, alone=True) == {2: PAID, 3: PAID}
    assert outcomes(balances) == {2: AMBIGUOUS, 3: AMBIGUOUS}


def test_a_request_is_charged_if_the_others_cannot_have_cost_what_is_missing():
    """Six credits cannot be those of requests of 2 and 3: the one of 5 was charged, of the others nobody knows."""
    balances = window(94, uncertain(1, 2), uncertain(2, 5), uncertain(3, 3))
    assert outcomes(balances, alone=True) == {1: AMBIGUOUS, 2: PAID, 3: AMBIGUOUS}


def test_equal_holds_are_not_guessed():
    """One of two equal holds is missing: nobody can say which was charged."""
    balances = window(97, uncertain(1, 3), uncertain(2, 3))
    assert outcomes(balances, alone=True) == {1: AMBIGUOUS, 2: AMBIGUOUS}


def test_a_reported_balance_tells_equal_holds_apart():
    """What is missing before a request was sent cannot be its charge; that needs requests sent one at a time."""
    balances = window(95, uncertain(1, 3), answered(2, 2, 95), uncertain(3, 3), sequential=True)
    assert outcomes(balances, alone=True) == {1: PAID, 3: UNPAID}
    assert reconcile(balances).verdicts[1].even_if_others_spend
    assert outcomes(replace(balances, sequential=False), alone=True) == {1: AMBIGUOUS, 3: AMBIGUOUS}


def test_a_request_is_charged_once():
    """A request that must have been charged in one gap does not explain a later one."""
    balances = window(96, uncertain(1, 9), answered(2, 0, 98), uncertain(3, 9), sequential=True)
    assert outcomes(balances, alone=True) == {1: PAID, 3: PAID}
    assert reconcile(balances, sole_spender=True).gaps[1].candidates == (1, 3)


def test_more_missing_than_all_holds_is_foreign():
    """What no request of ours can have cost was spent by others, and then nothing is proven."""
    result = reconcile(window(95, uncertain(1, 3)), sole_spender=True)
    assert result.verdicts[0].outcome is AMBIGUOUS
    assert (result.missing, result.foreign_at_least, result.gaps[0].missing) == (5, 2, 5)
    assert any("Others spent 2 credits or more" in note for note in result.notes)


def test_foreign_spending_in_one_gap_takes_the_trust_away():
    """Where a gap cannot be ours, sums that happen to fit elsewhere prove nothing."""
    result = reconcile(window(87, answered(1, 1, 92), uncertain(2, 5), sequential=True), sole_spender=True)
    assert [one.outcome for one in result.verdicts] == [AMBIGUOUS]
    assert result.foreign_at_least == 7
    assert [(gap.missing, gap.candidates) for gap in result.gaps] == [(7, ()), (5, (2,))]


def test_gaps_that_one_request_cannot_explain_are_foreign():
    """Two gaps and one request: others spent at least a credit, although each gap alone could be the request's."""
    balances = window(96, uncertain(1, 9), answered(2, 0, 98), sequential=True)
    result = reconcile(balances, sole_spender=True)
    assert (result.verdicts[0].outcome, result.foreign_at_least) == (AMBIGUOUS, 1)
    assert reconcile(balances).foreign_at_least == 0


@pytest.mark.parametrize(
    ("balances", "rise"),
    [
        (window(101, uncertain(1, 3)), 1),
        (window(147, answered(1, 3, 147), uncertain(2, 3)), 50),
        (window(90, answered(1, 3, 93), answered(2, 3, 97), uncertain(3, 3), sequential=True), 7),
    ],
)
def test_a_rising_balance_proves_nothing(balances, rise):
    """Credits that were added are seen where they show, and then nothing is proven."""
    result = reconcile(balances, sole_spender=True)
    assert result.verdicts[0].outcome is AMBIGUOUS
    assert result.added_at_least == rise
    assert f"rose by {rise} credits" in result.notes[0]


def test_with_several_in_flight_only_sums_count():
    """A balance that an answer reports while others were in flight proves nothing."""
    result = reconcile(window(93, answered(8, 2, 90), answered(9, 2, 99), uncertain(10, 3)))
    assert [one.outcome for one in result.verdicts] == [AMBIGUOUS]
    assert (result.added_at_least, result.missing) == (0, 3)


def test_a_moving_balance_proves_nothing():
    """Two different closing readings mean that charges are not final."""
    balances = BalanceWindow(100, (100, 97), (), (uncertain(1, 3),))
    assert outcomes(balances, alone=True) == {1: AMBIGUOUS}


def test_an_answer_without_a_charge_may_have_cost_its_hold():
    """It takes its own gap, and what is missing beyond its hold is left to the uncertain requests."""
    requests = (answered(1, None, 96, hold=4), answered(2, 2), uncertain(3, 2))
    assert outcomes(window(94, *requests, sequential=True)) == {3: UNPAID}
    assert outcomes(window(92, *requests, sequential=True), alone=True) == {3: PAID}
    assert outcomes(window(94, *requests), alone=True) == {3: AMBIGUOUS}


def test_answers_that_do_not_fit_prove_nothing():
    """A charge that is larger than the fall of the balance means that credits were added."""
    assert outcomes(window(99, answered(1, 4), uncertain(2, 9)), alone=True) == {2: AMBIGUOUS}


def test_a_thousand_uncertain_requests_are_judged_at_once():
    """There are no combinations to try: sums decide, however many requests there are."""
    lost = [uncertain(key, key) for key in range(1, 1001)]
    balance = 100 - sum(range(1, 1001)) + 10
    assert outcomes(window(balance, *lost), alone=True) == {
        key: PAID if key > 10 else AMBIGUOUS for key in range(1, 1001)
    }


def test_a_request_is_in_a_window_once():
    """The same request twice is a bug of the caller."""
    with pytest.raises(ValueError, match="twice"):
        reconcile(window(1, uncertain(1, 1), uncertain(1, 1)))


@st.composite
def small_windows(draw, *, sequential):
    """Anything at all, also what no account can do."""
    opening, requests = draw(st.integers(4, 12)), []
    for key in range(draw(st.integers(1, 5))):
        hold = draw(st.integers(0, 4))
        if draw(st.booleans()):
            requests.append(uncertain(key, hold))
        else:
            paid = draw(st.none() | st.integers(0, hold))
            requests.append(answered(key, paid, draw(st.none() | st.integers(0, opening)), hold))
    balances = window(draw(st.integers(0, opening)), *requests, sequential=sequential)
    return replace(balances, opening=opening)


def explanations(balances: BalanceWindow, *, alone: bool) -> Iterator[set[int]]:
    """By brute force: every set of uncertain requests that were charged in some case that explains the balances."""
    for charges in product(*(range(one.hold + 1) for one in balances.uncertain)):
        charged = [(one, paid) for one, paid in zip(balances.uncertain, charges, strict=True) if paid]
        unreported = [range(one.hold + 1) if one.paid is None else [one.paid] for one in balances.answers]
        if any(
            _explains(balances, order, alone=alone)
            for paid in product(*unreported)
            for order in permutations([*zip(balances.answers, paid, strict=True), *charged])
        ):
            yield {one.key for one, _ in charged}


def _explains(balances, order, *, alone):
    balance, latest = balances.opening, -1
    for one, paid in order:
        if isinstance(one, AnsweredRequest) and balances.sequential and one.sent < latest:
            return False  # it was answered before a request that is charged before it was sent
        latest = max(latest, one.sent)
        balance -= paid
        if balances.sequential and isinstance(one, AnsweredRequest) and one.remaining is not None:
            if balance < one.remaining or (alone and balance != one.remaining):
                return False
            balance = one.remaining
    return balance == balances.closing[1] if alone else balance >= balances.closing[1]


def best_outcomes(balances: BalanceWindow, *, alone: bool) -> dict[int, ProofOutcome]:
    """What any proof could say: by all explanations, those with other spenders if there is none without."""
    possible = list(explanations(balances, alone=alone)) or list(explanations(balances, alone=False))
    best = {}
    for one in balances.uncertain:
        charged = {one.key in case for case in possible}
        best[one.key] = PAID if charged == {True} else UNPAID if charged == {False} else AMBIGUOUS
    return best


@given(small_windows(sequential=False), st.booleans())
def test_with_several_in_flight_no_proof_can_say_more(balances, alone):
    """No brute force finds a case against a verdict, nor proves what is called ambiguous."""
    assert outcomes(balances, alone=alone) == best_outcomes(balances, alone=alone)


@given(small_windows(sequential=True), st.booleans())
@example(
    balances=BalanceWindow(
        5, (0, 0), (answered(2, None, 4, hold=0),), (uncertain(0, 2), uncertain(1, 3)), sequential=True
    ),
    alone=True,
)
def test_one_at_a_time_no_case_contradicts_a_verdict(balances, alone):
    """No brute force finds a case against a verdict."""
    best = best_outcomes(balances, alone=alone)
    assert all(
        best[key] is outcome for key, outcome in outcomes(balances, alone=alone).items() if outcome is not AMBIGUOUS
    )


@given(small_windows(sequential=True))
def test_one_at_a_time_what_holds_whoever_spends_is_always_proven(balances):
    """Where others may spend, no proof can say more."""
    assert outcomes(balances) == best_outcomes(balances, alone=False)
