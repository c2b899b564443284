"""Queries for balance proofs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.journal.balance_proofs import submissions_sent_between, throttled_since
from lightmeter.journal.commands.plan_rows import PlannedRow, add_rows
from lightmeter.journal.commands.submissions import hold_and_send, last_transition_id, revert_to_planned
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.submission_states import Event


@settings(max_examples=20, deadline=None)  # each makes a journal
@given(st.lists(st.sampled_from([Event.THROTTLE, Event.UNREACHED, None]), max_size=6))
def test_throttled_since_agrees_with_the_list_of_submissions(tmp_path_factory, ends):
    """For each transition, `throttled_since` is true exactly if a submission sent after it was throttled."""
    folder = tmp_path_factory.mktemp("journal")
    with Journal(folder) as journal:
        journal.submit(add_rows([PlannedRow(0, "0", "http://x/0", None, None, "image", "{}", own_id=False)])).result()
        for event in ends:
            number = journal.submit(hold_and_send([0], 1, None, 1.0)).result()
            if event is not None:
                journal.submit(revert_to_planned(number, event, "a reason", 2.0)).result()
    with open_read_only(folder) as db:
        last = last_transition_id(db)
        for after in range(last + 1):
            expected = any(one.throttled for one in submissions_sent_between(db, after, last))
            assert throttled_since(db, after) == expected
