"""What an earlier process left behind, however it ended: taken up before anything new is spent."""

from __future__ import annotations

from typing import Final

from lightmeter.journal.state import State
from lightmeter.journal.store import reading
from lightmeter.journal.submissions import answer_of, submissions_in
from lightmeter.pipeline.bookkeeping import Acked, Books
from lightmeter.pipeline.collecting import Collector
from lightmeter.pipeline.reconciling import as_sent
from lightmeter.pipeline.session import Session

__all__ = ["take_up"]

_LEFT: Final = frozenset({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED})
_UNREAD: Final = frozenset({State.ANSWERED, State.POLLED})


async def take_up(session: Session, books: Books, collector: Collector) -> None:
    """Settle answers that were kept and not read, poll for what was acknowledged, write down what was lost.

    The oldest acknowledged request is polled first: a service keeps answers for 24 hours.
    """
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
