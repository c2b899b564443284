"""What an earlier process left behind, however it ended: taken up before anything new is spent."""

from __future__ import annotations

from typing import Final

from lightmeter.client.classify import Verdict, judge_submission
from lightmeter.client.http_answer import RawAnswer
from lightmeter.engine.accounting import Acked, Books
from lightmeter.engine.poller import Collector
from lightmeter.engine.reconciler import as_sent
from lightmeter.engine.session import Session
from lightmeter.journal.outcome import Received
from lightmeter.journal.state import IN_DOUBT, Event, State
from lightmeter.journal.store import reading
from lightmeter.journal.submissions import answer_of, submissions_in

__all__ = ["take_up"]

_LEFT: Final = frozenset({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED})
_UNREAD: Final = frozenset({State.ANSWERED, State.POLLED})


async def take_up(session: Session, books: Books, collector: Collector) -> None:
    """Settle answers that were kept and not read, poll for what was acknowledged, write down what was lost.

    The oldest acknowledged request is polled first: a service keeps answers for 24 hours.
    """
    await _read_again(session, books)
    with reading(session.out) as db:
        left = list(submissions_in(db, _LEFT))
        unread = {one.submission_id: answer_of(db, one.submission_id) for one in left if one.state in _UNREAD}
    acked = [one for one in left if one.state is State.ACKED and one.request_id is not None]
    for place, one in enumerate(sorted(acked, key=lambda one: one.acked_at or 0.0)):
        collector.add(Acked(as_sent(one), one.request_id or "", one.acked_at or 0.0), place)
    for one in left:
        if one.state in _UNREAD:
            await books.settle(as_sent(one), unread[one.submission_id] or b"")
        elif one.state is State.SENT:
            await books.lose(as_sent(one), "The process ended before the answer came.")


async def _read_again(session: Session, books: Books) -> None:
    """Settle answers that are kept and could not be read before: a newer version may read them, with no request."""
    now = session.clock.now()
    with reading(session.out) as db:
        kept = [(one, answer_of(db, one.submission_id)) for one in submissions_in(db, IN_DOUBT)]
    for one, raw in kept:
        if raw is None or not (one.rows or one.retry):
            continue
        status = one.http_status or 0
        judgement = judge_submission(RawAnswer(status, {}, raw))
        if judgement.verdict is Verdict.ANSWERED:
            books.found(one.state, one.hold, len(one.rows))
            await books.keep(as_sent(one), Received(raw, status, now), Event.ANSWER, judgement)
