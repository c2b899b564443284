"""A state machine over the journal: whatever happens in whatever order, the money adds up."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from lightmeter.errors import BudgetReached
from lightmeter.journal.changes import (
    Outcome,
    Placed,
    Received,
    Refusal,
    acknowledge,
    hold_and_send,
    lose,
    receive,
    resend,
    settle,
    take_back,
    void,
)
from lightmeter.journal.items import count_by_status, pending_rows, totals
from lightmeter.journal.planned import PlannedRow, add_rows
from lightmeter.journal.state import HOLDING, Event
from lightmeter.journal.store import Journal, reading

ROWS = 40
BUDGET = 60


def planned(seq: int, **more: object) -> PlannedRow:
    url = f"http://example.org/{seq}.jpg"
    values = {"item_id": f"i{seq}", "url": url, "path": None, "identity": url, "kind": "image", "extra": "{}"}
    return PlannedRow(seq, **{**values, "own_id": True, "frames_low": 1, "frames_high": 1, **more})


class Money(RuleBasedStateMachine):
    """Holds, answers, losses and refusals in any order."""

    sent = Bundle("sent")
    acked = Bundle("acked")
    received = Bundle("received")
    lost = Bundle("lost")

    def __init__(self) -> None:
        super().__init__()
        self._kept = tempfile.TemporaryDirectory()
        self.folder = Path(self._kept.name)
        self.journal = Journal(self.folder)
        self.write(add_rows([planned(seq) for seq in range(ROWS)]))
        self.paid = 0

    def teardown(self) -> None:
        self.journal.close()
        self._kept.cleanup()

    def write(self, change):
        return self.journal.submit(change).result()

    def rows_of(self, submission_id: int) -> tuple[int, ...]:
        with reading(self.folder) as db:
            found = db.execute("SELECT seq FROM items WHERE submission_id = ? ORDER BY seq", (submission_id,))
            return tuple(seq for (seq,) in found)

    @rule(target=sent, rows=st.integers(1, 3), hold=st.integers(1, 9))
    def send(self, rows, hold):
        with reading(self.folder) as db:
            waiting = [row.seq for row in pending_rows(db, 0, ROWS)][:rows]
            paid, held = totals(db)
        if not waiting:
            return None
        if paid + held + hold > BUDGET:
            with pytest.raises(BudgetReached):
                self.write(hold_and_send(waiting, hold, BUDGET, 1.0))
            return None
        return self.write(hold_and_send(waiting, hold, BUDGET, 1.0)), hold

    @rule(target=received, one=consumes(sent))
    def answer(self, one):
        if one:
            self.write(receive(one[0], Received(b"{}", 200, 2.0), Event.ANSWER))
        return one

    @rule(target=acked, one=consumes(sent))
    def ack(self, one):
        if one:
            self.write(acknowledge(one[0], "r1", 2.0))
        return one

    @rule(target=received, one=consumes(acked))
    def collect(self, one):
        if one:
            self.write(receive(one[0], Received(b"{}", 200, 2.0, polls=3), Event.COLLECT))
        return one

    @rule(one=consumes(received), share=st.floats(0, 1), good=st.booleans())
    def settle(self, one, share, good):
        if one:
            paid = int(one[1] * share)
            error = None if good else "no asset"
            placed = tuple(Placed(seq, 0 if good else None, None, error) for seq in self.rows_of(one[0]))
            self.write(settle(one[0], Outcome(paid, 5, "r1", placed), 3.0))
            self.paid += paid

    @rule(one=consumes(sent), wait=st.booleans())
    def refuse(self, one, wait):
        if one:
            self.write(void(one[0], Refusal("refused", "no", rows_wait=wait), 3.0))

    @rule(one=consumes(sent), event=st.sampled_from([Event.UNREACHED, Event.THROTTLE]))
    def never_counted(self, one, event):
        if one:
            self.write(take_back(one[0], event, "why", 3.0))

    @rule(target=lost, one=consumes(sent))
    def lose_sent(self, one):
        if one:
            self.write(lose(one[0], "gone", 3.0))
        return one

    @rule(target=lost, one=consumes(acked))
    def lose_acked(self, one):
        if one:
            self.write(lose(one[0], "expired", 3.0))
        return one

    @rule(target=sent, one=consumes(lost))
    def ask_again(self, one):
        if one:
            self.write(resend(one[0], 4.0))
        return one

    @invariant()
    def the_money_adds_up(self):
        """Paid is what was settled, held is the sum of the open holds, and both stay within the budget."""
        with reading(self.folder) as db:
            paid, held = totals(db)
            states = list(db.execute("SELECT state, hold FROM submissions"))
        assert paid == self.paid
        assert held == sum(hold for state, hold in states if state in HOLDING)
        assert paid + held <= BUDGET

    @invariant()
    def every_row_is_in_one_count(self):
        """No row is lost and none is counted twice."""
        with reading(self.folder) as db:
            assert sum(count_by_status(db).values()) == ROWS


TestMoney = Money.TestCase
TestMoney.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


async def test_duplicates_are_found_by_address_and_by_content(tmp_path):
    """An identical asset is paid for once: the same canonical URL, or the same bytes."""
    rows = [
        planned(0, content_sha256="aa"),
        planned(1, identity="http://example.org/0.jpg"),
        planned(2, content_sha256="aa"),
        planned(3),
    ]
    with Journal(tmp_path) as journal:
        await journal.write(add_rows(rows))
    with reading(tmp_path) as db:
        stands = list(db.execute("SELECT item_id, status, duplicate_of FROM items ORDER BY seq"))
    assert stands == [
        ("i0", "pending", None),
        ("i1", "duplicate", "i0"),
        ("i2", "duplicate", "i0"),
        ("i3", "pending", None),
    ]


async def test_a_repeated_id_is_a_row_with_a_reason(tmp_path):
    """Two rows cannot share an id: the later one is skipped and says why, and its own id is made unique."""
    with Journal(tmp_path) as journal:
        await journal.write(add_rows([planned(0), planned(1, item_id="i0")]))
    with reading(tmp_path) as db:
        assert list(db.execute("SELECT item_id, status, reason FROM items ORDER BY seq")) == [
            ("i0", "pending", None),
            ("i0#1", "skipped", "id_repeated"),
        ]


async def test_a_skipped_row_is_nobodys_original(tmp_path):
    """A row that is not sent cannot stand in for another."""
    with Journal(tmp_path) as journal:
        await journal.write(
            add_rows([planned(0, status="skipped", reason="x"), planned(1, identity=planned(0).identity)])
        )
    with reading(tmp_path) as db:
        assert [status for (status,) in db.execute("SELECT status FROM items ORDER BY seq")] == ["skipped", "pending"]
