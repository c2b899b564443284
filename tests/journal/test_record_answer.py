"""`receive_and_settle` leaves the same journal as `record_answer` followed by `settle`; answers are stored alike."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.errors import BudgetReached, InvalidTransition
from lightmeter.journal.commands.plan_rows import PlannedRow, add_rows
from lightmeter.journal.commands.record_answer import receive_and_settle, store_answer
from lightmeter.journal.commands.submissions import acknowledge, hold_and_send, record_answer, settle
from lightmeter.journal.compression import decompress
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, RowResult
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.submission_states import Event

ROWS = 3
result = st.tuples(st.none() | st.integers(0, 9), st.none() | st.text(max_size=5), st.none() | st.text(min_size=1))


def pending_rows(number):
    """Make pending rows."""
    return [
        PlannedRow(seq, str(seq), f"http://x/{seq}", None, None, "image", "{}", own_id=False) for seq in range(number)
    ]


def submit_at_once(journal, changes):
    """Submit changes so that all are queued before the writer takes any; return their completed futures."""
    wait = threading.Event()
    first = journal.submit(lambda _: wait.wait(10))
    futures = [journal.submit(change) for change in changes]
    wait.set()
    first.result()
    for future in futures:
        future.exception()
    return futures


def write_all(journal, changes, *, at_once):
    """Return the results of changes, written one by one or in one batch."""
    if at_once:
        return [future.result() for future in submit_at_once(journal, changes)]
    return [journal.submit(change).result() for change in changes]


def journal_with_a_request(folder, *, acked):
    """Make a journal with one request of all rows that was sent, and accepted by the service if `acked`."""
    journal = Journal(folder)
    journal.submit(add_rows(pending_rows(ROWS))).result()
    number = journal.submit(hold_and_send(range(ROWS), 5, 5, 1.0)).result()
    if acked:
        journal.submit(acknowledge(number, "r", 2.0)).result()
    return journal, number


def contents(folder):
    """Return all rows of the journal's tables, with decompressed answers."""
    with open_read_only(folder) as db:
        tables = ("items", "submissions", "transitions", "money")
        found = {table: list(db.execute(f"SELECT * FROM {table} ORDER BY 1, rowid")) for table in tables}  # noqa: S608 (constants)
        return found | {"answers": [(key, decompress(raw)) for key, raw in db.execute("SELECT * FROM answers")]}


@settings(max_examples=25, deadline=None)  # each makes two journals
@given(
    st.booleans(),
    st.binary(max_size=30),
    st.integers(0, 5),
    st.tuples(result, result, result),
    st.booleans(),
)
def test_both_ways_leave_the_same_journal(tmp_path_factory, acked, raw, paid, results, charge_reported):
    """One change writes the same bytes, credits, rows and transitions as two."""
    received = ReceivedAnswer(raw, 200, 3.0, polls=2 * acked)
    rows = tuple(RowResult(seq, *one) for seq, one in enumerate(results))
    outcome = AnswerOutcome(paid, 90, "r", rows, charge_reported=charge_reported)
    event = Event.COLLECT if acked else Event.ANSWER
    folders = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    journal, number = journal_with_a_request(folders[0], acked=acked)
    with journal:
        journal.submit(store_answer(number, received)).result()
        journal.submit(record_answer(number, received, event)).result()
        journal.submit(settle(number, outcome, 3.0, "odd")).result()
    journal, number = journal_with_a_request(folders[1], acked=acked)
    with journal:
        journal.submit(store_answer(number, received)).result()
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
def test_a_batch_is_written_like_single_changes(tmp_path_factory, requests):
    """Answers in one batch leave the journal as if each was written alone."""
    folders = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("together")
    for folder in folders:
        with Journal(folder) as journal:
            journal.submit(add_rows(pending_rows(len(requests)))).result()
            holds = [hold_and_send([seq], 2, 2 * len(requests), 1.0) for seq in range(len(requests))]
            numbers = write_all(journal, holds, at_once=folder == folders[1])
            assert numbers == list(range(1, len(requests) + 1))
            for number, (acked, *_) in zip(numbers, requests, strict=True):
                if acked:
                    journal.submit(acknowledge(number, "r", 2.0)).result()
            stored = [
                store_answer(number, ReceivedAnswer(raw, 200, 3.0))
                for number, (_, raw, *_) in zip(numbers, requests, strict=True)
            ]
            write_all(journal, stored, at_once=folder == folders[1])
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
            write_all(journal, answers, at_once=folder == folders[1])
    alone, together = map(contents, folders)
    assert sorted(alone.pop("transitions"), key=str) == sorted(together.pop("transitions"), key=str)
    assert alone == together


def test_an_invalid_change_does_not_affect_others_of_its_batch(tmp_path):
    """A second answer to a request is refused; the others of its batch are written."""
    with Journal(tmp_path) as journal:
        journal.submit(add_rows(pending_rows(3))).result()
        numbers = write_all(journal, [hold_and_send([seq], 1, 3, 1.0) for seq in range(3)], at_once=True)
        change = [
            receive_and_settle(number, ReceivedAnswer(b"{}", 200, 3.0), Event.ANSWER, AnswerOutcome(1, 0, None, ()))
            for number in (*numbers, numbers[0], 99)
        ]
        done = list(submit_at_once(journal, change))
        assert [future.exception() is None for future in done] == [True, True, True, False, False]
        assert isinstance(done[3].exception(), InvalidTransition)
        with open_read_only(tmp_path) as db:
            assert list(db.execute("SELECT paid, held FROM money")) == [(3, 0)]
            assert list(db.execute("SELECT count(*) FROM transitions")) == [(12,)]


def test_a_budget_for_some_of_a_batch_admits_those(tmp_path):
    """If the budget is too small for a whole batch, credits are reserved one request at a time while it lasts."""
    with Journal(tmp_path) as journal:
        journal.submit(add_rows(pending_rows(3))).result()
        done = list(submit_at_once(journal, [hold_and_send([seq], 2, 5, 1.0) for seq in range(3)]))
        assert [future.exception() for future in done[:2]] == [None, None]
        with pytest.raises(BudgetReached, match="4 held, of 5"):
            done[2].result()
        with open_read_only(tmp_path) as db:
            assert list(db.execute("SELECT paid, held FROM money")) == [(0, 4)]
            assert list(db.execute("SELECT seq FROM items WHERE submission_id IS NULL")) == [(2,)]


def test_a_request_is_settled_once(tmp_path):
    """A second answer to a request whose charge is known is refused and changes nothing."""
    received, outcome = ReceivedAnswer(b"{}", 200, 3.0), AnswerOutcome(5, 0, None, (RowResult(0, 0),))
    journal, number = journal_with_a_request(tmp_path, acked=False)
    with journal:
        journal.submit(receive_and_settle(number, received, Event.ANSWER, outcome)).result()
        before = contents(tmp_path)
        with pytest.raises(InvalidTransition):
            journal.submit(receive_and_settle(number, received, Event.ANSWER, outcome)).result()
        assert contents(tmp_path) == before
