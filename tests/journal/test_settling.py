"""One change that keeps an answer and settles it leaves the journal as the two changes do one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.errors import InvalidTransition
from lightmeter.journal.changes import Outcome, Placed, Received, acknowledge, hold_and_send, receive, settle
from lightmeter.journal.planned import PlannedRow, add_rows
from lightmeter.journal.raw import unpack
from lightmeter.journal.settling import receive_and_settle
from lightmeter.journal.state import Event
from lightmeter.journal.store import Journal, reading

ROWS = 3
placed = st.tuples(st.none() | st.integers(0, 9), st.none() | st.text(max_size=5), st.none() | st.text(min_size=1))


def journal_with_a_request(folder, *, acked):
    """A journal whose rows are all in one request that was sent, and acknowledged if wanted."""
    journal = Journal(folder)
    rows = [
        PlannedRow(seq, str(seq), f"http://x/{seq}", None, None, "image", "{}", own_id=False) for seq in range(ROWS)
    ]
    journal.submit(add_rows(rows)).result()
    number = journal.submit(hold_and_send(range(ROWS), 5, 5, 1.0)).result()
    if acked:
        journal.submit(acknowledge(number, "r", 2.0)).result()
    return journal, number


def contents(folder):
    """All that the journal says, with answers as they came."""
    with reading(folder) as db:
        tables = ("items", "submissions", "transitions", "money")
        said = {table: list(db.execute(f"SELECT * FROM {table} ORDER BY 1, rowid")) for table in tables}  # noqa: S608 (our own words)
        return said | {"answers": [(key, unpack(raw)) for key, raw in db.execute("SELECT * FROM answers")]}


@settings(max_examples=25, deadline=None)  # each makes two journals
@given(st.booleans(), st.binary(max_size=30), st.integers(0, 5), st.tuples(placed, placed, placed), st.booleans())
def test_both_ways_leave_the_same_journal(tmp_path_factory, acked, raw, paid, found, said):
    """Bytes, money, rows and every step in its order: nothing tells which way was taken."""
    received = Received(raw, 200, 3.0, polls=2 * acked)
    rows = tuple(Placed(seq, *one) for seq, one in enumerate(found))
    outcome = Outcome(paid, 90, "r", rows, said=said)
    event = Event.COLLECT if acked else Event.ANSWER
    folders = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    journal, number = journal_with_a_request(folders[0], acked=acked)
    with journal:
        journal.submit(receive(number, received, event)).result()
        journal.submit(settle(number, outcome, 3.0, "odd")).result()
    journal, number = journal_with_a_request(folders[1], acked=acked)
    with journal:
        journal.submit(receive_and_settle(number, received, event, outcome, "odd")).result()
    assert contents(folders[0]) == contents(folders[1])


def test_what_is_settled_is_not_settled_again(tmp_path):
    """Money moves once: a second answer to the same request is refused, and changes nothing."""
    received, outcome = Received(b"{}", 200, 3.0), Outcome(5, 0, None, (Placed(0, 0),))
    journal, number = journal_with_a_request(tmp_path, acked=False)
    with journal:
        journal.submit(receive_and_settle(number, received, Event.ANSWER, outcome)).result()
        before = contents(tmp_path)
        with pytest.raises(InvalidTransition):
            journal.submit(receive_and_settle(number, received, Event.ANSWER, outcome)).result()
        assert contents(tmp_path) == before
