"""Balances decide what happens to requests without an answer, and no verdict is wrong."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.journal.balance_proofs import BalanceReading, WindowSubmission
from lightmeter.journal.submission_states import HOLDING, Event, State
from lightmeter.money.lost_answer_charges import build_proof
from tests.money.account_worlds import KINDS, make_world

OPENING = BalanceReading(1, 0.0, 1000, 0)


def submission(key: int, state: State, hold: int = 1, paid: int | None = None, **more: object) -> WindowSubmission:
    values = {"remaining": None, "charge_reported": True, "sent": 2 * key, "answered": None, "throttled": False}
    if state is State.SETTLED:
        values["answered"] = 2 * key + 1
    return WindowSubmission(key, state, hold, paid, **{**values, **more})


def proven(balance: int, *submissions: WindowSubmission, sole_spender: bool = False):
    readings = (BalanceReading(2, 1.0, balance, 99), BalanceReading(3, 2.0, balance, 99))
    document, rulings = build_proof(OPENING, readings, submissions, sole_spender=sole_spender)
    return document, {one.submission_id: (one.event, one.paid) for one in rulings}


def test_if_nothing_is_missing_lost_requests_are_unpaid():
    """If the balance is as expected, the lost request was not charged, even if others spend from the account."""
    document, done = proven(995, submission(1, State.SETTLED, 5, 5), submission(2, State.UNCERTAIN, 3))
    assert done == {2: (Event.PROVE_UNPAID, 0)}
    assert (document["expected"], document["missing"], document["charged"]) == (995, 0, 5)
    assert document["verdicts"][0]["verdict"] == "proven_unpaid"


def test_by_default_missing_credits_prove_nothing():
    """If others may have spent the missing credits, the request stays in doubt until the user excludes that."""
    lost = submission(2, State.UNCERTAIN, 3)
    assert proven(997, lost)[1] == {2: (Event.GIVE_UP, 0)}
    assert proven(997, lost, sole_spender=True)[1] == {2: (Event.PROVE_PAID, 3)}


def test_if_others_spent_nothing_is_proven():
    """If more is missing than the requests can have cost, every request stays unresolved, whatever the user says."""
    lost = (submission(1, State.UNCERTAIN, 2), submission(2, State.UNCERTAIN, 3))
    document, done = proven(990, *lost, sole_spender=True)
    assert {event for event, _ in done.values()} == {Event.GIVE_UP}
    assert document["foreign_at_least"] >= 5


def test_if_credits_were_added_nothing_is_proven():
    """If the balance is higher than expected, credits were added, and nothing is proven."""
    document, done = proven(1500, submission(1, State.UNCERTAIN, 2), sole_spender=True)
    assert done == {1: (Event.GIVE_UP, 0)}
    assert document["added_at_least"] == 500


def test_an_assumed_charge_proves_nothing():
    """An answer without a reported charge may have cost less than its hold, and the lost request the rest."""
    silent = submission(1, State.SETTLED, 5, 5, charge_reported=False)
    assert proven(995, silent, submission(2, State.UNCERTAIN, 3))[1] == {2: (Event.GIVE_UP, 0)}


def test_no_credit_is_counted_for_two_requests():
    """What an answer without a reported charge counts as paid is not counted again for the lost request."""
    silent = submission(1, State.SETTLED, 3, 3, charge_reported=False)
    document, done = proven(993, silent, submission(2, State.UNCERTAIN, 5), sole_spender=True)
    assert done == {2: (Event.PROVE_PAID, 4)}
    assert (document["missing"], document["unexplained"]) == (7, 4)


def test_throttled_requests_are_checked_too():
    """The balances show whether requests refused as too fast cost nothing; they may explain missing credits."""
    fast = submission(1, State.PLANNED, 1, None, throttled=True)
    clean, _ = proven(1000, fast, submission(2, State.UNCERTAIN, 1))
    assert "cost nothing" in clean["notes"][0]
    suspect, done = proven(999, fast, submission(2, State.UNCERTAIN, 1), sole_spender=True)
    assert done == {2: (Event.GIVE_UP, 0)}
    assert "#1" in suspect["notes"][-1]


def test_a_written_off_request_may_still_have_been_charged():
    """A request that was paid for again stays a candidate for what is missing."""
    written_off = submission(1, State.WRITTEN_OFF, 1)
    assert proven(999, written_off, submission(2, State.UNCERTAIN, 1), sole_spender=True)[1] == {2: (Event.GIVE_UP, 0)}


LOST = st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.integers(1, 6)), min_size=1, max_size=6)


@given(LOST, st.lists(st.integers(0, 5), max_size=5), st.booleans(), st.integers(0, 4))
def test_no_verdict_is_wrong_and_the_sums_agree(lost, paid, sole_spender, others):
    """Requests proven unpaid were not charged, those proven paid were, and together they cost what is missing."""
    others = 0 if sole_spender else others
    answered = [submission(key, State.SETTLED, 9, credits_) for key, credits_ in enumerate(paid, 100)]
    uncertain = [submission(key, State.UNCERTAIN, hold) for key, (hold, _, _) in enumerate(lost, 1)]
    charged = {key: min(hold, price) * was for key, (hold, was, price) in enumerate(lost, 1)}
    balance = OPENING.balance - sum(paid) - sum(charged.values()) - others
    document, done = proven(balance, *answered, *uncertain, sole_spender=sole_spender)
    assert set(done) == set(charged)
    for key, (event, credits_) in done.items():
        assert event is not Event.PROVE_UNPAID or charged[key] == 0
        assert event is not Event.PROVE_PAID or charged[key] > 0
        assert credits_ <= uncertain[key - 1].hold
    if all(event is not Event.GIVE_UP for event, _ in done.values()):
        assert sum(credits_ for _, credits_ in done.values()) == document["missing"] == sum(charged.values())


SEEDS = st.integers(0, 10**9)


@given(st.sampled_from([kind for kind in KINDS if "denied" not in kind]), SEEDS)
def test_no_verdict_is_wrong(kind, seed):
    """Every verdict is true in every kind of simulated account, as long as what the user says is true.

    No request counts as more than its hold, and all requests together do not count as less than they have cost.
    """
    world = make_world(seed, kind)
    document, resolutions = world.prove()
    assert world.wrong(document) == set()
    requests = [one for one in world.submissions if not one.throttled]  # (a 429 counts as free)
    counted = {one.submission_id: one.hold if one.state in HOLDING else one.paid or 0 for one in requests}
    decided = {Event.PROVE_PAID, Event.PROVE_UNPAID}
    counted |= {one.submission_id: one.paid for one in resolutions if one.event in decided}
    assert all(counted[one.submission_id] <= one.hold for one in requests)
    if all(one["verdict"] != "ambiguous" for one in document["verdicts"]):
        assert sum(counted.values()) >= sum(world.charged[key] for key in counted)
    for one in resolutions:
        assert one.event is not Event.PROVE_UNPAID or not world.charged[one.submission_id]
        assert one.event is not Event.PROVE_PAID or world.charged[one.submission_id]


@given(SEEDS)
def test_a_sole_spender_keeps_all_other_proofs(seed):
    """With `sole_spender`, while it is true, everything that is proven without it stays proven."""
    world = make_world(seed, "sole spender")
    alone, _ = world.prove()
    shared, _ = replace(world, sole_spender=False).prove()
    for one, other in zip(shared["verdicts"], alone["verdicts"], strict=True):
        assert one["verdict"] in ("ambiguous", other["verdict"])


@given(SEEDS)
def test_one_at_a_time_a_lost_request_is_always_proven(seed):
    """With one request in flight and a balance read after a loss, every outcome is proven."""
    document, _ = make_world(seed, "one at a time, last lost").prove()
    assert all(one["verdict"] != "ambiguous" for one in document["verdicts"])
