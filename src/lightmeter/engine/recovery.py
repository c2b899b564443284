"""Continue the requests that an earlier process left open, before anything new is sent. None is sent again here.

If the answer is stored, what it says is recorded. If the service accepted the request, its answer is polled
for. If no reply was stored, the request is recorded as lost: its credits stay reserved, and `Reconciler` finds out
later whether it was charged. It does not matter how the earlier process ended, for example by a crash.
"""

from __future__ import annotations

from typing import Final

from lightmeter.client.classify import ResponseVerdict, classify_poll, classify_submission
from lightmeter.client.http_answer import RawAnswer
from lightmeter.engine.accounting import Accounting
from lightmeter.engine.in_flight import PolledRequest, to_in_flight_request
from lightmeter.engine.run_state import RunState
from lightmeter.engine.sender import Sender
from lightmeter.journal.commands.submissions import poll_again
from lightmeter.journal.outcome import ReceivedAnswer
from lightmeter.journal.queries.submissions import read_answer, submissions_in
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submission_states import IN_DOUBT, Event, State
from lightmeter.run_session.session import Session
from lightmeter.wire.constants import RESULT_LIFETIME_S

_OPEN: Final = frozenset({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED})
"""States of requests that an earlier process has left unfinished."""

_CHARGE_NOT_RECORDED: Final = frozenset({State.ANSWERED, State.POLLED})
"""States of requests whose answer is stored as bytes, while the charge and the results in it are not recorded yet."""

_WITH_ANSWER: Final = _CHARGE_NOT_RECORDED | {State.SENT}
"""States of requests whose answer may be stored. In the state `SENT`, nothing has read it yet."""


async def recover_open_submissions(
    session: Session, run_state: RunState, accounting: Accounting, sender: Sender
) -> None:
    """Continue the requests of an earlier process.

    Stored answers are interpreted, and their charges recorded. Requests that the service accepted are polled for in the
    order of acceptance, because a service keeps answers for only 24 hours. Requests without any reply are recorded as
    lost.

    Args:
        session: The open run.
        run_state: Receives the requests to poll for.
        accounting: Records answers to polls, and lost requests.
        sender: Records answers to a POST.
    """
    await _record_readable_answers(session, accounting)
    with open_read_only(session.out) as db:
        records = list(submissions_in(db, _OPEN))
        answers = {
            record.submission_id: read_answer(db, record.submission_id)
            for record in records
            if record.state in _WITH_ANSWER
        }
    acked = [record for record in records if record.state is State.ACKED and record.request_id is not None]
    for position, record in enumerate(sorted(acked, key=lambda record: record.acked_at or 0.0)):
        now, request = session.clock.monotonic(), to_in_flight_request(record)
        run_state.add_poll(PolledRequest(now, request, record.request_id or "", record.acked_at or 0.0, position))
    for record in records:
        if record.state in _CHARGE_NOT_RECORDED:
            answer = answers[record.submission_id] or b""
            await accounting.count_stored_answer(to_in_flight_request(record), answer)
        elif record.state is State.SENT:
            request, raw, status = to_in_flight_request(record), answers[record.submission_id], record.http_status or 0
            if raw is None:
                await accounting.record_unknown_outcome(request, "The process ended before the answer came.")
            else:
                received = ReceivedAnswer(raw, status, session.clock.now())
                await sender.record(request, received, classify_submission(RawAnswer(status, {}, raw)))


async def _record_readable_answers(session: Session, accounting: Accounting) -> None:
    """Record charges and results from stored answers that an older version of lightmeter could not read.

    Their requests are in doubt until then. If this version cannot read an answer either, but the service still has it,
    it is polled for again.
    """
    now = session.clock.now()
    with open_read_only(session.out) as db:
        stored = [(record, read_answer(db, record.submission_id)) for record in submissions_in(db, IN_DOUBT)]
    for record, raw in stored:
        if raw is None or not (record.rows or record.retry):
            continue
        status = record.http_status or 0
        answer = RawAnswer(status, {}, raw)
        classification = classify_submission(answer)
        if classification.verdict is ResponseVerdict.ANSWERED:
            accounting.count_rows_as_pending(record.state, record.hold, len(record.rows))
            received = ReceivedAnswer(raw, status, now)
            await accounting.record_answer(to_in_flight_request(record), received, Event.ANSWER, classification)
        elif (
            record.acked_at is not None
            and session.clock.min_age_s(record.acked_at, earlier=True) < RESULT_LIFETIME_S
            and classify_poll(answer).verdict is ResponseVerdict.UNCERTAIN
        ):
            accounting.count_rows_as_pending(record.state, record.hold, len(record.rows))
            await session.journal.write(poll_again(record.submission_id, now))
