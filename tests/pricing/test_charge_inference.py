"""The balance proof is true in every world that fits, and as sharp as any proof can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.pricing.balance_chain import AnsweredRequest, UncertainRequest
from lightmeter.pricing.charge_inference import AccountAssumptions, BalanceWindow, ProofOutcome, reconcile
from lightmeter.pricing.estimate import CreditRange
from lightmeter.pricing.subset_sum import PackingItem, max_fill, possibilities
from tests.pricing.account import KINDS, make_world

ALONE = AccountAssumptions(sole_spender=True, answers_form_chain=True)
SHARED = AccountAssumptions(answers_form_chain=True)
TOLD = st.sampled_from([kind for kind in KINDS if "denied" not in kind])
UNPAID, PAID, AMBIGUOUS = ProofOutcome.UNPAID, ProofOutcome.PAID, ProofOutcome.AMBIGUOUS


def price(*credits_: int) -> frozenset[int]:
    return frozenset(credits_)


def ruled(window: BalanceWindow, trust: AccountAssumptions = SHARED) -> dict[int, ProofOutcome]:
    return {one.key: one.proven for one in reconcile(window, trust).verdicts}


def test_nothing_missing_means_nothing_charged():
    """When the balance is as expected no uncertain request was charged, whoever else uses the account."""
    window = BalanceWindow(
        100,
        (91, 91),
        (AnsweredRequest(1, 9, 91),),
        (UncertainRequest(2, price(3)), UncertainRequest(3, CreditRange(1, None))),
    )
    found = reconcile(window)
    assert [one.proven for one in found.verdicts] == [UNPAID, UNPAID]
    assert all(one.even_if_others_spend for one in found.verdicts)
    assert found.verdicts[0].proof == (
        "100 at first, 91 expected after 1 answers, 91 read twice: 0 missing. Nothing is missing: it was not charged."
    )


def test_all_missing_means_all_charged():
    """When all their prices together are missing, all were charged, if nobody else spends."""
    window = BalanceWindow(
        100, (83, 83), (AnsweredRequest(1, 9, 91),), (UncertainRequest(2, price(3)), UncertainRequest(3, price(5)))
    )
    assert ruled(window, ALONE) == {2: PAID, 3: PAID}
    assert ruled(window) == {2: AMBIGUOUS, 3: AMBIGUOUS}


def test_the_only_sum_that_fits_is_told():
    """Exactly one set of prices adds up: those were charged, the others were not."""
    window = BalanceWindow(
        100, (92, 92), (), (UncertainRequest(1, price(3)), UncertainRequest(2, price(5)), UncertainRequest(3, price(4)))
    )
    assert ruled(window, ALONE) == {1: PAID, 2: PAID, 3: UNPAID}


def test_equal_prices_are_not_guessed():
    """One of two equal prices is missing: nobody can say which."""
    window = BalanceWindow(100, (97, 97), (), (UncertainRequest(1, price(3)), UncertainRequest(2, price(3))))
    assert ruled(window, ALONE) == {1: AMBIGUOUS, 2: AMBIGUOUS}


def test_the_chain_tells_equal_prices_apart():
    """A gap before an answer that came before the second request left can only be the first one's."""
    answers = (AnsweredRequest(9, 2, 95, sent=1, answered=4),)
    window = BalanceWindow(
        100, (95, 95), answers, (UncertainRequest(1, price(3), sent=2), UncertainRequest(2, price(3), sent=5))
    )
    assert ruled(window, ALONE) == {1: PAID, 2: UNPAID}
    assert reconcile(window, SHARED).verdicts[1].even_if_others_spend
    untimed = replace(window, answers=(AnsweredRequest(9, 2, 95),))
    assert ruled(untimed, ALONE) == {1: AMBIGUOUS, 2: AMBIGUOUS}


def test_a_gap_smaller_than_any_price_is_somebody_elses():
    """What no price of ours explains is reported as foreign, and the proof no longer relies on being alone."""
    window = BalanceWindow(100, (98, 98), (), (UncertainRequest(1, price(3)),))
    found = reconcile(window, ALONE)
    assert (found.verdicts[0].proven, found.verdicts[0].even_if_others_spend) == (UNPAID, True)
    assert (found.missing, found.foreign, found.gaps[0].unexplained) == (2, 2, 2)
    assert any("Others spent 2 credits or more" in note for note in found.notes)


def test_foreign_spending_takes_the_trust_away():
    """Where a gap cannot be ours, sums that happen to fit elsewhere prove nothing."""
    answers = (AnsweredRequest(8, 1, 92, sent=1, answered=2),)
    window = BalanceWindow(
        100, (87, 87), answers, (UncertainRequest(1, price(5), sent=3), UncertainRequest(2, price(9), sent=3))
    )
    found = reconcile(window, ALONE)
    assert [one.proven for one in found.verdicts] == [AMBIGUOUS, UNPAID]
    assert found.foreign == 7
    assert [(gap.segment.missing, gap.candidates, gap.unexplained) for gap in found.gaps] == [(7, (), 7), (5, (1,), 0)]


@pytest.mark.parametrize(
    ("window", "word"),
    [
        (BalanceWindow(100, (101, 101), (), (UncertainRequest(1, price(3)),)), "rose by 1"),
        (BalanceWindow(100, (147, 147), (AnsweredRequest(2, 3, 147),), (UncertainRequest(1, price(3)),)), "rose by 50"),
        (
            BalanceWindow(
                100,
                (90, 90),
                (AnsweredRequest(2, 3, 97, sent=8, answered=9), AnsweredRequest(3, 3, 93, sent=1, answered=2)),
                (UncertainRequest(1, price(3)),),
            ),
            "#2 left after #3 was answered with less",
        ),
    ],
)
def test_a_rising_balance_proves_nothing(window, word):
    """Credits that were added unsaid are seen where they show, and then nothing is proven."""
    found = reconcile(window, ALONE)
    assert found.verdicts[0].proven is AMBIGUOUS
    assert found.rose >= 1
    assert word in found.notes[0]


def test_credits_said_to_be_added_are_counted():
    """A top-up that the user names is part of the expected balance."""
    window = BalanceWindow(
        10, (502, 502), (AnsweredRequest(1, 5, 5), AnsweredRequest(2, 3, 502)), (UncertainRequest(3, price(4)),)
    )
    assert ruled(window, AccountAssumptions(added=500)) == {3: UNPAID}
    assert ruled(window, ALONE) == {3: AMBIGUOUS}


def test_what_could_hide_an_addition_is_not_proven():
    """Where charges could have used up what was added unseen, nothing is proven."""
    window = BalanceWindow(100, (100, 100), (), (UncertainRequest(1, price(30)), UncertainRequest(2, price(20))))
    assert ruled(window, AccountAssumptions(sole_spender=True, min_unreported_addition=50)) == {
        1: AMBIGUOUS,
        2: AMBIGUOUS,
    }
    assert ruled(window, AccountAssumptions(sole_spender=True, min_unreported_addition=51)) == {1: UNPAID, 2: UNPAID}
    assert ruled(window, AccountAssumptions(min_unreported_addition=10_000)) == {1: AMBIGUOUS, 2: AMBIGUOUS}


def test_by_default_only_sums_count():
    """Balances said in between, which many services say of another moment, prove nothing unless they are a chain."""
    answers = (AnsweredRequest(8, 2, 90), AnsweredRequest(9, 2, 99))
    window = BalanceWindow(100, (93, 93), answers, (UncertainRequest(1, price(3)), UncertainRequest(2, price(4))))
    found = reconcile(window)
    assert [one.proven for one in found.verdicts] == [AMBIGUOUS, UNPAID]
    assert (found.rose, found.missing) == (0, 3)


def test_a_moving_balance_proves_nothing():
    """Two different closing readings mean that charges are not final."""
    window = BalanceWindow(100, (100, 97), (), (UncertainRequest(1, price(3)),))
    assert ruled(window, ALONE) == {1: AMBIGUOUS}


def test_a_charge_that_an_answer_does_not_say_is_worked_out():
    """An answer without its price takes its own gap, and leaves the rest to the uncertain."""
    answers = (AnsweredRequest(1, None, 96, price(4)), AnsweredRequest(2, 2, None))
    assert ruled(BalanceWindow(100, (94, 94), answers, (UncertainRequest(3, price(2)),))) == {3: UNPAID}
    assert ruled(BalanceWindow(100, (92, 92), answers, (UncertainRequest(3, price(2)),)), ALONE) == {3: PAID}


def test_answers_that_do_not_fit_prove_nothing():
    """A charge that must have happened and has no room means that the numbers are not what they are taken for."""
    window = BalanceWindow(100, (99, 99), (AnsweredRequest(1, None, None, price(4)),), (UncertainRequest(2, price(9)),))
    assert ruled(window, ALONE) == {2: AMBIGUOUS}


def test_too_much_work_is_ambiguous():
    """Beyond the bound of the work nothing is proven, except what needs none."""
    uncertain = (
        *(UncertainRequest(key, price(key, 2 * key)) for key in range(1, 30)),
        UncertainRequest(99, price(10_000)),
    )
    window = BalanceWindow(1000, (900, 900), (), uncertain)
    found = reconcile(window, ALONE, most_work_bits=100)
    assert {one.proven for one in found.verdicts[:-1]} == {AMBIGUOUS}
    assert found.verdicts[-1].proven is UNPAID
    assert any("too many combinations" in note for note in found.notes)


def test_a_request_is_there_once():
    """The same request twice is a bug of the caller."""
    with pytest.raises(ValueError, match="twice"):
        reconcile(BalanceWindow(1, (1, 1), (), (UncertainRequest(1, price(1)), UncertainRequest(1, price(1)))))


TIMES = st.none() | st.integers(0, 6)
PRICES = st.frozensets(st.integers(1, 5), min_size=1, max_size=2)


@st.composite
def small_windows(draw):
    """Anything at all, also what no account can do."""
    opening = draw(st.integers(8, 14))
    answers = []
    for key in range(draw(st.integers(0, 3))):
        sent = draw(TIMES)
        answered = None if draw(st.booleans()) else (sent or 0) + draw(st.integers(1, 4))
        paid = draw(st.none() | st.integers(1, 4))
        answers.append(AnsweredRequest(key, paid, draw(st.integers(0, opening)), draw(PRICES), sent, answered))
    uncertain = [UncertainRequest(10 + key, draw(PRICES), draw(TIMES)) for key in range(draw(st.integers(1, 3)))]
    closing = draw(st.integers(0, opening))
    return BalanceWindow(opening, (closing, closing), tuple(answers), tuple(uncertain))


def worlds(window: BalanceWindow, *, alone: bool) -> Iterator[set[int]]:
    """By brute force: every set of uncertain requests that were charged in some world that fits."""
    for choice in product(*((0, *sorted(one.prices)) for one in window.uncertain)):
        charged = [(one, paid) for one, paid in zip(window.uncertain, choice, strict=True) if paid]
        unsaid = [sorted(one.prices) if one.paid is None else [one.paid] for one in window.answers]
        if any(
            _runs_down(window, order, alone=alone)
            for said in product(*unsaid)
            for order in permutations([*charged, *zip(window.answers, said, strict=True)])
        ):
            yield {one.key for one, _ in charged}


def _runs_down(window, order, *, alone):
    balance, latest = window.opening, -1
    for one, paid in order:
        latest = max(latest, -1 if one.sent is None else one.sent)
        answered = getattr(one, "answered", None)
        if answered is not None and latest > answered:
            return False
        balance -= paid
        remaining = getattr(one, "remaining", None)
        if remaining is not None:
            if balance < remaining or (alone and balance != remaining):
                return False
            balance = remaining
    return balance == window.closing[1] if alone else balance >= window.closing[1]


@given(small_windows(), st.booleans())
def test_verdicts_are_what_all_worlds_have_in_common(window, alone):
    """No brute force finds a world against a verdict, nor proves what is called ambiguous."""
    possible = list(worlds(window, alone=alone))
    if not possible:  # not alone, then, or not even that
        possible = list(worlds(window, alone=False))
    want = {}
    for one in window.uncertain:
        seen = {one.key in world for world in possible}
        proven = PAID if seen == {True} else UNPAID if seen == {False} else AMBIGUOUS
        want[one.key] = proven
    assert ruled(window, AccountAssumptions(sole_spender=alone, answers_form_chain=True)) == want


@given(st.integers(0, 10**9))
def test_a_proof_without_trust_holds_with_it(seed):
    """To know more about the account takes no proof away while it is true."""
    window = make_world(seed, "sole spender").window
    bold, careful = ruled(window, ALONE), ruled(window)
    assert all(bold[key] is proven for key, proven in careful.items() if proven is not AMBIGUOUS)


@given(TOLD, st.integers(0, 10**9))
def test_no_verdict_is_wrong(kind, seed):
    """Whatever happens to an account, a verdict is true as long as what the user said of it is."""
    world = make_world(seed, kind)
    assert world.wrong(reconcile(world.window, world.trust)) == []


@given(TOLD, st.integers(0, 10**9), st.integers(10, 5000))
def test_a_tight_bound_makes_no_verdict_wrong(kind, seed, bits):
    """With too little work allowed verdicts get fewer, never wrong."""
    world = make_world(seed, kind)
    few = {one.key: one.proven for one in reconcile(world.window, world.trust, most_work_bits=bits).verdicts}
    all_ = ruled(world.window, world.trust)
    assert all(proven is AMBIGUOUS or proven is all_[key] for key, proven in few.items())


@given(st.integers(0, 10**9))
def test_one_at_a_time_is_always_provable(seed):
    """With one request in flight and a look at the balance after a loss, every end is proven."""
    world = make_world(seed, "one at a time")
    found = reconcile(world.window, world.trust)
    assert world.wrong(found) == []
    assert all(one.proven is not AMBIGUOUS for one in found.verdicts)


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), max_size=6))
def test_most_filled_is_the_best_sum(size, runs):
    """The most that prices fill is the best of all sums that fit."""
    prices = [((low, low + width),) for low, width in runs]
    sums = {0}
    for ((low, high),) in prices:
        sums |= {total + price for total in sums for price in range(low, high + 1)}
    assert max_fill(size, prices) == max(total for total in sums if total <= size)


def test_bins_are_joined_before_work_is_refused():
    """Joined bins allow more ways than there are: what is still ruled out was ruled out before."""
    items = [PackingItem(range(1), ((7, 7),)), PackingItem(range(3), ((2, 2),)), PackingItem(range(2, 3), ((1, 1),))]
    sharp = possibilities([2, 0, 1], items, exact=True)
    joined = possibilities([2, 0, 1], items, exact=True, most_work_bits=160)
    assert sharp is not None
    assert joined is not None
    assert [(one.out, one.placed) for one in sharp] == [(True, False), (False, True), (False, True)]
    assert not joined[0].placed
    assert possibilities([2, 0, 1], items, exact=True, most_work_bits=1) is None
