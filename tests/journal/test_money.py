"""A state machine over the journal: the credits add up after any sequence of events."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lightmeter.errors import BudgetReached
from lightmeter.journal.balance_proofs import (
    SubmissionResolution,
    apply_resolutions,
    record_balance,
    requeue_unanswered_rows,
)
from lightmeter.journal.commands.plan_rows import PlannedRow, add_rows
from lightmeter.journal.commands.submissions import (
    acknowledge,
    hold_and_send,
    mark_uncertain,
    record_answer,
    record_refusal,
    resend,
    revert_to_planned,
    settle,
)
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, Refusal, RowResult
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.queries.items import count_by_status
from lightmeter.journal.queries.pending_rows import pending_rows
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.submission_states import HOLDING, IN_DOUBT, Event

ROWS = 40
BUDGET = 60


def planned(seq: int, **more: object) -> PlannedRow:
    url = f"http://example.org/{seq}.jpg"
    values = {"item_id": f"i{seq}", "url": url, "path": None, "identity": url, "kind": "image", "extra": "{}"}
    return PlannedRow(seq, **{**values, "own_id": True, "frames_low": 1, "frames_high": 1, **more})


class Credits(RuleBasedStateMachine):
    """Send, answer, lose, refuse and resolve requests in any order."""

    sent = Bundle("sent")
    acked = Bundle("acked")
    received = Bundle("received")
    lost = Bundle("lost")
    given_up = Bundle("given_up")

    def __init__(self) -> None:
        super().__init__()
        self._temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self._temporary.name)
        self.journal = Journal(self.folder)
        self.write(add_rows([planned(seq) for seq in range(ROWS)]))
        self.paid = 0
        self.holds: dict[int, int] = {}

    def teardown(self) -> None:
        self.journal.close()
        self._temporary.cleanup()

    def write(self, change):
        return self.journal.submit(change).result()

    def rows_of(self, submission_id: int) -> tuple[int, ...]:
        with open_read_only(self.folder) as db:
            found = db.execute("SELECT seq FROM items WHERE submission_id = ? ORDER BY seq", (submission_id,))
            return tuple(seq for (seq,) in found)

    @rule(target=sent, rows=st.integers(1, 3), hold=st.integers(1, 9))
    def send(self, rows, hold):
        with open_read_only(self.folder) as db:
            waiting = [row.seq for row in pending_rows(db, 0, ROWS)][:rows]
            paid, held = credit_totals(db)
        if not waiting:
            return None
        if paid + held + hold > BUDGET:
            with pytest.raises(BudgetReached):
                self.write(hold_and_send(waiting, hold, BUDGET, 1.0))
            return None
        submission_id = self.write(hold_and_send(waiting, hold, BUDGET, 1.0))
        self.holds[submission_id] = hold
        return submission_id, hold

    @rule(target=received, one=consumes(sent))
    def answer(self, one):
        if one:
            self.write(record_answer(one[0], ReceivedAnswer(b"{}", 200, 2.0), Event.ANSWER))
        return one

    @rule(target=acked, one=consumes(sent))
    def ack(self, one):
        if one:
            self.write(acknowledge(one[0], "r1", 2.0))
        return one

    @rule(target=received, one=consumes(acked))
    def collect(self, one):
        if one:
            self.write(record_answer(one[0], ReceivedAnswer(b"{}", 200, 2.0, polls=3), Event.COLLECT))
        return one

    @rule(one=consumes(received), share=st.floats(0, 1), good=st.booleans())
    def settle(self, one, share, good):
        if one:
            paid = int(one[1] * share)
            error = None if good else "no asset"
            results = tuple(RowResult(seq, 0 if good else None, None, error) for seq in self.rows_of(one[0]))
            self.write(settle(one[0], AnswerOutcome(paid, 5, "r1", results), 3.0))
            self.paid += paid
            del self.holds[one[0]]

    @rule(one=consumes(sent), wait=st.booleans())
    def refuse(self, one, wait):
        if one:
            self.write(record_refusal(one[0], Refusal("refused", "no", rows_retryable=wait), 3.0))
            del self.holds[one[0]]

    @rule(one=consumes(sent), event=st.sampled_from([Event.UNREACHED, Event.THROTTLE]))
    def never_counted(self, one, event):
        if one:
            self.write(revert_to_planned(one[0], event, "why", 3.0))
            del self.holds[one[0]]

    @rule(target=lost, one=consumes(sent))
    def lose_sent(self, one):
        if one:
            self.write(mark_uncertain(one[0], "gone", 3.0))
        return one

    @rule(target=lost, one=consumes(acked))
    def lose_acked(self, one):
        if one:
            self.write(mark_uncertain(one[0], "expired", 3.0))
        return one

    @rule(target=sent, one=consumes(lost))
    def ask_again(self, one):
        if one:
            self.write(resend(one[0], 4.0))
        return one

    def judge(self, one, event, paid=0):
        opening = self.write(record_balance(100, 5.0, opens=True))
        closing = self.write(record_balance(99, 6.0, opens=False))
        self.write(apply_resolutions(opening, closing, {}, [SubmissionResolution(one[0], event, "why", paid)]))

    def undecided(self, one) -> bool:
        """Return whether its charge is still unknown: `pay_again` may have written it off."""
        if one is None:
            return False
        with open_read_only(self.folder) as db:
            ((state,),) = db.execute("SELECT state FROM submissions WHERE submission_id = ?", (one[0],))
        return state in IN_DOUBT

    @rule(one=consumes(lost))
    def prove_unpaid(self, one):
        self.free(one)

    @rule(one=consumes(given_up))
    def prove_unpaid_in_the_end(self, one):
        self.free(one)

    @rule(one=consumes(lost), share=st.floats(0, 1))
    def prove_paid(self, one, share):
        self.count_as_paid(one, share)

    @rule(one=consumes(given_up), share=st.floats(0, 1))
    def prove_paid_in_the_end(self, one, share):
        self.count_as_paid(one, share)

    def free(self, one):
        if self.undecided(one):
            rows = self.rows_of(one[0])
            self.judge(one, Event.PROVE_UNPAID)
            del self.holds[one[0]]
            with open_read_only(self.folder) as db:
                assert set(rows) <= {row.seq for row in pending_rows(db, 0, ROWS)}

    def count_as_paid(self, one, share):
        if self.undecided(one):
            paid = int(one[1] * share)
            self.judge(one, Event.PROVE_PAID, paid)
            self.paid += paid
            del self.holds[one[0]]

    @rule(target=given_up, one=consumes(lost))
    def give_up(self, one):
        if one:
            self.judge(one, Event.GIVE_UP)
        return one

    @rule(allowance=st.integers(0, 12))
    def pay_again(self, allowance):
        """Sending rows again costs no more than the allowance, and the totals of credits do not change."""
        with open_read_only(self.folder) as db:
            before = credit_totals(db)
            waiting = len(list(pending_rows(db, 0, ROWS)))
        credits_, rows = self.write(requeue_unanswered_rows(allowance, 7.0))
        assert credits_ <= allowance
        with open_read_only(self.folder) as db:
            assert credit_totals(db) == before
            assert len(list(pending_rows(db, 0, ROWS))) == waiting + rows

    @invariant()
    def the_credits_add_up(self):
        """Paid and reserved credits equal the sums over all requests, and stay within the budget."""
        with open_read_only(self.folder) as db:
            paid, held = credit_totals(db)
            states = list(db.execute("SELECT state, hold FROM submissions"))
        assert paid == self.paid
        assert held == sum(self.holds.values()) == sum(hold for state, hold in states if state in HOLDING)
        assert BUDGET - paid - held >= 0

    @invariant()
    def every_row_is_counted_once(self):
        """The numbers of rows by status sum to the number of rows."""
        with open_read_only(self.folder) as db:
            assert sum(count_by_status(db).values()) == ROWS


TestCredits = Credits.TestCase
# Each step commits to a disk, which may be slow: that is no failure.
TestCredits.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


async def test_duplicates_are_found_by_url_and_by_content(tmp_path):
    """Rows with the same canonical URL or the same bytes are duplicates of the first."""
    rows = [
        planned(0, content_sha256="aa"),
        planned(1, identity="http://example.org/0.jpg"),
        planned(2, content_sha256="aa"),
        planned(3),
    ]
    with Journal(tmp_path) as journal:
        await journal.write(add_rows(rows))
    with open_read_only(tmp_path) as db:
        rows_found = list(db.execute("SELECT item_id, status, duplicate_of FROM items ORDER BY seq"))
    assert rows_found == [
        ("i0", "pending", None),
        ("i1", "duplicate", "i0"),
        ("i2", "duplicate", "i0"),
        ("i3", "pending", None),
    ]


async def test_a_row_with_a_repeated_id_is_skipped(tmp_path):
    """Of two rows with one id the later is skipped with a reason, and gets a unique id."""
    with Journal(tmp_path) as journal:
        await journal.write(add_rows([planned(0), planned(1, item_id="i0")]))
    with open_read_only(tmp_path) as db:
        assert list(db.execute("SELECT item_id, status, reason FROM items ORDER BY seq")) == [
            ("i0", "pending", None),
            ("i0#1", "skipped", "id_repeated"),
        ]


async def test_a_skipped_row_has_no_duplicates(tmp_path):
    """A row with the identity of a skipped row is not its duplicate."""
    with Journal(tmp_path) as journal:
        await journal.write(
            add_rows([planned(0, status="skipped", reason="x"), planned(1, identity=planned(0).identity)])
        )
    with open_read_only(tmp_path) as db:
        assert [status for (status,) in db.execute("SELECT status FROM items ORDER BY seq")] == ["skipped", "pending"]
