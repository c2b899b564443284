"""What an earlier process left behind, however it ended: taken up before anything new is spent."""

from __future__ import annotations

from typing import Final

from lightmeter.client.classify import ResponseVerdict, classify_submission
from lightmeter.client.http_answer import RawAnswer
from lightmeter.engine.accounting import Accounting, AcknowledgedRequest
from lightmeter.engine.poller import Poller
from lightmeter.engine.reconciler import to_in_flight_request
from lightmeter.engine.session import Session
from lightmeter.journal.outcome import ReceivedAnswer
from lightmeter.journal.state import IN_DOUBT, Event, State
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submissions import read_answer, submissions_in

__all__ = ["recover_open_submissions"]

_LEFT: Final = frozenset({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED})
_UNREAD: Final = frozenset({State.ANSWERED, State.POLLED})


async def recover_open_submissions(session: Session, books: Accounting, collector: Poller) -> None:
    """Settle answers that were kept and not read, poll for what was acknowledged, write down what was lost.

    The oldest acknowledged request is polled first: a service keeps answers for 24 hours.
    """
    await _read_again(session, books)
    with open_read_only(session.out) as db:
        left = list(submissions_in(db, _LEFT))
        unread = {one.submission_id: read_answer(db, one.submission_id) for one in left if one.state in _UNREAD}
    acked = [one for one in left if one.state is State.ACKED and one.request_id is not None]
    for place, one in enumerate(sorted(acked, key=lambda one: one.acked_at or 0.0)):
        collector.add(AcknowledgedRequest(to_in_flight_request(one), one.request_id or "", one.acked_at or 0.0), place)
    for one in left:
        if one.state in _UNREAD:
            await books.settle(to_in_flight_request(one), unread[one.submission_id] or b"")
        elif one.state is State.SENT:
            await books.lose(to_in_flight_request(one), "The process ended before the answer came.")


async def _read_again(session: Session, books: Accounting) -> None:
    """Settle answers that are kept and could not be read before: a newer version may read them, with no request."""
    now = session.clock.now()
    with open_read_only(session.out) as db:
        kept = [(one, read_answer(db, one.submission_id)) for one in submissions_in(db, IN_DOUBT)]
    for one, raw in kept:
        if raw is None or not (one.rows or one.retry):
            continue
        status = one.http_status or 0
        judgement = classify_submission(RawAnswer(status, {}, raw))
        if judgement.verdict is ResponseVerdict.ANSWERED:
            books.found(one.state, one.hold, len(one.rows))
            await books.keep(to_in_flight_request(one), ReceivedAnswer(raw, status, now), Event.ANSWER, judgement)
