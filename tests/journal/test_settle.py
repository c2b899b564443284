"""One change that keeps an answer and settles it leaves the journal as the two changes do one after the other."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.errors import BudgetReached, InvalidTransition
from lightmeter.journal.commands import acknowledge, hold_and_send, record_answer, settle
from lightmeter.journal.compression import decompress
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, RowResult
from lightmeter.journal.plan_rows import PlannedRow, add_rows
from lightmeter.journal.settle import receive_and_settle
from lightmeter.journal.state import Event
from lightmeter.journal.store import Journal, open_read_only

ROWS = 3
placed = st.tuples(st.none() | st.integers(0, 9), st.none() | st.text(max_size=5), st.none() | st.text(min_size=1))


def some_rows(number):
    """Rows that wait."""
    return [
        PlannedRow(seq, str(seq), f"http://x/{seq}", None, None, "image", "{}", own_id=False) for seq in range(number)
    ]


def handed_in(journal, changes):
    """The changes, all of which wait before the writer looks; their futures, done."""
    wait = threading.Event()
    first = journal.submit(lambda _: wait.wait(10))
    futures = [journal.submit(change) for change in changes]
    wait.set()
    first.result()
    for future in futures:
        future.exception()
    return futures


def written(journal, changes, *, at_once):
    """What the changes return, each written alone or all that wait together."""
    if at_once:
        return [future.result() for future in handed_in(journal, changes)]
    return [journal.submit(change).result() for change in changes]


def journal_with_a_request(folder, *, acked):
    """A journal whose rows are all in one request that was sent, and acknowledged if wanted."""
    journal = Journal(folder)
    journal.submit(add_rows(some_rows(ROWS))).result()
    number = journal.submit(hold_and_send(range(ROWS), 5, 5, 1.0)).result()
    if acked:
        journal.submit(acknowledge(number, "r", 2.0)).result()
    return journal, number


def contents(folder):
    """All that the journal says, with answers as they came."""
    with open_read_only(folder) as db:
        tables = ("items", "submissions", "transitions", "money")
        said = {table: list(db.execute(f"SELECT * FROM {table} ORDER BY 1, rowid")) for table in tables}  # noqa: S608 (our own words)
        return said | {"answers": [(key, decompress(raw)) for key, raw in db.execute("SELECT * FROM answers")]}


@settings(max_examples=25, deadline=None)  # each makes two journals
@given(st.booleans(), st.binary(max_size=30), st.integers(0, 5), st.tuples(placed, placed, placed), st.booleans())
def test_both_ways_leave_the_same_journal(tmp_path_factory, acked, raw, paid, found, said):
    """Bytes, money, rows and every step in its order: nothing tells which way was taken."""
    received = ReceivedAnswer(raw, 200, 3.0, polls=2 * acked)
    rows = tuple(RowResult(seq, *one) for seq, one in enumerate(found))
    outcome = AnswerOutcome(paid, 90, "r", rows, charge_reported=said)
    event = Event.COLLECT if acked else Event.ANSWER
    folders = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    journal, number = journal_with_a_request(folders[0], acked=acked)
    with journal:
        journal.submit(record_answer(number, received, event)).result()
        journal.submit(settle(number, outcome, 3.0, "odd")).result()
    journal, number = journal_with_a_request(folders[1], acked=acked)
    with journal:
        journal.submit(receive_and_settle(number, received, event, outcome, "odd")).result()
    assert contents(folders[0]) == contents(folders[1])


@settings(max_examples=15, deadline=None)  # each makes two journals
@given(
    st.lists(
        st.tuples(st.booleans(), st.binary(max_size=9), st.integers(0, 2), st.none() | st.text()),
        min_size=2,
        max_size=8,
    )
)
def test_together_is_as_one_by_one(tmp_path_factory, requests):
    """Answers that wait for the writer at the same time leave the journal as if each had come alone."""
    folders = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("together")
    for folder in folders:
        with Journal(folder) as journal:
            journal.submit(add_rows(some_rows(len(requests)))).result()
            holds = [hold_and_send([seq], 2, 2 * len(requests), 1.0) for seq in range(len(requests))]
            numbers = written(journal, holds, at_once=folder == folders[1])
            assert numbers == list(range(1, len(requests) + 1))
            for number, (acked, *_) in zip(numbers, requests, strict=True):
                if acked:
                    journal.submit(acknowledge(number, "r", 2.0)).result()
            answers = [
                receive_and_settle(
                    number,
                    ReceivedAnswer(raw, 200, 3.0),
                    Event.COLLECT if acked else Event.ANSWER,
                    AnswerOutcome(paid, 90, None, (RowResult(number - 1, 0, name),)),
                    name,
                )
                for number, (acked, raw, paid, name) in zip(numbers, requests, strict=True)
            ]
            written(journal, answers, at_once=folder == folders[1])
    alone, together = map(contents, folders)
    assert sorted(alone.pop("transitions"), key=str) == sorted(together.pop("transitions"), key=str)
    assert alone == together


def test_one_that_cannot_be_settled_spoils_no_other(tmp_path):
    """An answer that came twice is refused; those that were to be written with it are written."""
    with Journal(tmp_path) as journal:
        journal.submit(add_rows(some_rows(3))).result()
        numbers = written(journal, [hold_and_send([seq], 1, 3, 1.0) for seq in range(3)], at_once=True)
        change = [
            receive_and_settle(number, ReceivedAnswer(b"{}", 200, 3.0), Event.ANSWER, AnswerOutcome(1, 0, None, ()))
            for number in (*numbers, numbers[0], 99)
        ]
        done = list(handed_in(journal, change))
        assert [future.exception() is None for future in done] == [True, True, True, False, False]
        assert isinstance(done[3].exception(), InvalidTransition)
        with open_read_only(tmp_path) as db:
            assert list(db.execute("SELECT paid, held FROM money")) == [(3, 0)]
            assert list(db.execute("SELECT count(*) FROM transitions")) == [(12,)]


def test_a_budget_for_some_of_them_lets_these_through(tmp_path):
    """Prices that a budget does not hold all at once are held one after the other, as far as it reaches."""
    with Journal(tmp_path) as journal:
        journal.submit(add_rows(some_rows(3))).result()
        done = list(handed_in(journal, [hold_and_send([seq], 2, 5, 1.0) for seq in range(3)]))
        assert [future.exception() for future in done[:2]] == [None, None]
        with pytest.raises(BudgetReached, match="4 held, of 5"):
            done[2].result()
        with open_read_only(tmp_path) as db:
            assert list(db.execute("SELECT paid, held FROM money")) == [(0, 4)]
            assert list(db.execute("SELECT seq FROM items WHERE submission_id IS NULL")) == [(2,)]


def test_what_is_settled_is_not_settled_again(tmp_path):
    """Money moves once: a second answer to the same request is refused, and changes nothing."""
    received, outcome = ReceivedAnswer(b"{}", 200, 3.0), AnswerOutcome(5, 0, None, (RowResult(0, 0),))
    journal, number = journal_with_a_request(tmp_path, acked=False)
    with journal:
        journal.submit(receive_and_settle(number, received, Event.ANSWER, outcome)).result()
        before = contents(tmp_path)
        with pytest.raises(InvalidTransition):
            journal.submit(receive_and_settle(number, received, Event.ANSWER, outcome)).result()
        assert contents(tmp_path) == before
