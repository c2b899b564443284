"""Answers that must be asked for: a heap by due time, so that thousands of them cost nothing while they wait.

Polls have a pace of their own: what the service says to them about its limits says nothing about submissions.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from dataclasses import dataclass, field

from lightmeter.client.classify import Classification, ResponseVerdict, classify_poll
from lightmeter.client.polling import PollSchedule
from lightmeter.client.rate_limit import AdaptiveLimiter, SendRecord, parse_quota
from lightmeter.client.transport import RawAnswer
from lightmeter.engine.accounting import Accounting, AcknowledgedRequest
from lightmeter.engine.run_state import RunState
from lightmeter.engine.session import Session
from lightmeter.errors import AccessDenied, OutcomeUnknown, Unreachable
from lightmeter.facts.lenient_json import parse_object_strict
from lightmeter.journal.outcome import ReceivedAnswer
from lightmeter.journal.state import Event
from lightmeter.models.vocabulary import VIDEO_SUFFIXES

__all__ = ["Poller"]

POLLS_AT_ONCE = 8
FRUITLESS_POLLS_PER_S = 200.0
"""Polls that find nothing, all ids together: 150 µs each, so that ten thousand ids take 3 % of a core, not half of one.
Polls that find something are not held back by it, and with fewer than 40 ids it is no limit at all."""
LONGEST_WAIT_S = 600.0
JUST_ACKED_S = 60.0
"""A service may not know an id at once that it has just given: for so long, `not found` means `ask again`."""


@dataclass(order=True, slots=True)
class _Due:
    at: float
    acked: AcknowledgedRequest = field(compare=False)
    polls: int = field(default=0, compare=False)
    earlier: bool = field(default=False, compare=False)
    """Whether an earlier process had it acknowledged, by a clock that may have been set since."""
    pending_s: float = field(default=0.0, compare=False)
    """Its age when it was last known not to be done."""


class Poller:
    """Polls acknowledged submissions until each has its answer, or none can be had."""

    def __init__(self, session: Session, standing: RunState, books: Accounting, schedule: PollSchedule) -> None:
        self._session = session
        self._standing = standing
        self._books = books
        self._schedule = schedule
        self._heap: list[_Due] = []
        self._woken = asyncio.Event()
        self._room = asyncio.Semaphore(POLLS_AT_ONCE)
        self._asked = 0
        self._pace = AdaptiveLimiter(
            POLLS_AT_ONCE,
            watch_latency=False,
            jitter=random.Random().random,  # noqa: S311 (spreads pauses; no secret)
        )

    def add(self, acked: AcknowledgedRequest, place: int | None = None) -> None:
        """Take over one acknowledged submission; `place` is its number among those an earlier process left."""
        self._standing.polled += 1
        self._books.names.on_request_started(len(acked.sent.rows))
        due = _Due(0.0, acked, earlier=place is not None)
        if place is None:
            self._wait(due)
        else:
            due.pending_s = float("inf")  # it may have been done long ago: its first poll teaches nothing
            self._put(due, self._schedule.resumed_poll_delay(place))

    def _wait(self, due: _Due, least_s: float = 0.0) -> None:
        delay_s = self._schedule.next_delay(due.polls, self._age_s(due), *_class_of(due.acked))
        self._put(due, max(least_s, delay_s))

    def _put(self, due: _Due, delay_s: float) -> None:
        due.at = self._session.clock.monotonic() + delay_s
        heapq.heappush(self._heap, due)
        self._woken.set()

    async def serve(self) -> None:
        """Poll for ever; the engine cancels it when nothing is outstanding or the run stops."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                now = self._session.clock.monotonic()
                while self._heap and self._heap[0].at <= now:
                    await self._room.acquire()
                    await self._may_ask()
                    group.create_task(self._poll(heapq.heappop(self._heap)))
                pause = self._heap[0].at - now if self._heap else None
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    continue

    async def _may_ask(self) -> None:
        clock = self._session.clock
        while (wait_s := self._pace.wait_s(clock.monotonic(), self._asked)) > 0:
            await clock.sleep(wait_s)
        self._pace.on_admitted(clock.monotonic())
        self._asked += 1

    async def _poll(self, due: _Due) -> None:
        ticket = self._pace.on_sent(self._session.clock.monotonic())
        try:
            due.polls += 1
            try:
                raw = await self._session.client.fetch_response(due.acked.request_id)
            except (OutcomeUnknown, Unreachable) as error:  # a poll is free: it is just asked again
                self._pace.on_lost(ticket)
                await self._again(due, str(error))
            else:
                await asyncio.shield(self._read(ticket, due, raw))
        finally:
            self._asked -= 1
            self._room.release()

    async def _read(self, ticket: SendRecord, due: _Due, raw: RawAnswer) -> None:
        """Bytes that are not strictly JSON are on disk before anybody reads them."""
        data, now = parse_object_strict(raw.body), self._session.clock.now()
        if data is None:
            await self._books.store_raw_answer(due.acked.sent, ReceivedAnswer(raw.body, raw.status, now))
        judgement = classify_poll(raw, now=now, data=data)
        self._paced(ticket, raw, judgement)
        await self._judged(due, raw, judgement)

    def _paced(self, ticket: SendRecord, raw: RawAnswer, judgement: Classification) -> None:
        now = self._session.clock.monotonic()
        if judgement.verdict is ResponseVerdict.THROTTLED:
            self._pace.on_throttled(now, judgement.retry_after_s, ticket)
        else:
            self._pace.on_answer(now, now - ticket.sent_at, ticket)
        if judgement.retry_after_s is None and (quota := parse_quota(raw.headers)) is not None:
            self._pace.on_quota(now, quota)

    async def _judged(self, due: _Due, raw: RawAnswer, judgement: Classification) -> None:
        verdict = judgement.verdict
        if verdict in {ResponseVerdict.ANSWERED, ResponseVerdict.FAILED}:
            self._schedule.on_done(*_class_of(due.acked), due.pending_s, self._age_s(due))
            received = ReceivedAnswer(raw.body, raw.status, self._session.clock.now(), due.polls)
            await self._books.keep(due.acked.sent, received, Event.COLLECT, judgement)
            self._ended(due)
        elif verdict is ResponseVerdict.DENIED:
            self._standing.stop(AccessDenied(judgement.error or "Access denied."))
            self._wait(due)
        elif verdict is ResponseVerdict.NOT_FOUND and self._age_s(due) > JUST_ACKED_S:
            await self._lost(due, judgement.error or "The service no longer has the answer.")
        else:
            await self._again(due, judgement.error or f"status {raw.status}", judgement.retry_after_s or 0.0)

    def _age_s(self, due: _Due) -> float:
        return self._session.clock.least_age_s(due.acked.acked_at, earlier=due.earlier)

    async def _again(self, due: _Due, why: str, least_s: float = 0.0) -> None:
        if self._age_s(due) > self._schedule.deadline_s:
            await self._lost(due, f"No answer before it expired; last: {why}")
        else:
            due.pending_s = self._age_s(due)
            crowd_s = min(LONGEST_WAIT_S, self._standing.polled / FRUITLESS_POLLS_PER_S)
            self._wait(due, max(least_s, crowd_s))

    async def _lost(self, due: _Due, why: str) -> None:
        await self._books.lose(due.acked.sent, why)
        self._ended(due)

    def _ended(self, due: _Due) -> None:
        self._standing.polled -= 1
        self._books.names.on_request_ended(len(due.acked.sent.rows))
        self._standing.changed.set()


def _class_of(acked: AcknowledgedRequest) -> tuple[str, int]:
    """The kind and size under which its completion time is learned."""
    rows = acked.sent.rows
    video = any(name.partition("?")[0].lower().endswith(VIDEO_SUFFIXES) for _, name in rows)
    return "video" if video else "image", len(rows)
