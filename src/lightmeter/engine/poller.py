"""Poll for the answers of acknowledged requests. A heap orders them by due time, so waiting requests cost nothing.

Polls have a rate limiter of their own, because a service may limit polls and submissions differently.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from dataclasses import dataclass, field
from typing import Final

from lightmeter.client.classify import Classification, ResponseVerdict, classify_poll
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.polling import PollSchedule
from lightmeter.client.rate_limit import AdaptiveLimiter, SendRecord, parse_quota
from lightmeter.engine.accounting import Accounting
from lightmeter.engine.in_flight import AcknowledgedRequest
from lightmeter.engine.run_state import RunState
from lightmeter.engine.session import Session
from lightmeter.errors import AccessDenied, OutcomeUnknown, Unreachable
from lightmeter.facts.lenient_json import parse_object_strict
from lightmeter.journal.outcome import ReceivedAnswer
from lightmeter.journal.submission_states import Event
from lightmeter.wire.constants import VIDEO_SUFFIXES

MAX_POLLS_IN_FLIGHT: Final = 8
"""Polls at the same time: enough for 400 polls a second at a latency of 20 ms."""

UNFINISHED_POLLS_PER_S: Final = 200.0
"""Most polls a second that find no answer, over all ids. Each costs 150 µs, so ten thousand ids take 3 % of a core.
The limit does not delay polls that find an answer, and has no effect on fewer than 40 ids."""

MAX_DELAY_S: Final = 600.0
"""Longest delay that `UNFINISHED_POLLS_PER_S` may cause."""

NEW_ID_S: Final = 60.0
"""A service may not know an id that it has just issued: up to this age in seconds, `not found` means `poll again`."""


@dataclass(order=True, slots=True)
class _PollTask:
    """A request to poll for, ordered by due time.

    Attributes:
        due_s: When to poll next, in monotonic seconds.
        acknowledged: The request.
        polls: Polls so far.
        pending_s: Its age in seconds when it was last known to be unfinished.
    """

    due_s: float
    acknowledged: AcknowledgedRequest = field(compare=False)
    polls: int = field(default=0, compare=False)
    pending_s: float = field(default=0.0, compare=False)


class Poller:
    """Polls for each acknowledged request until it has an answer, or until the service has deleted the answer.

    Args:
        session: The open run.
        run_state: Its queue `new_polls` supplies the requests.
        accounting: Records answers.
        schedule: Decides how long to wait between polls.
    """

    def __init__(self, session: Session, run_state: RunState, accounting: Accounting, schedule: PollSchedule) -> None:
        self._session = session
        self._run_state = run_state
        self._accounting = accounting
        self._schedule = schedule
        self._heap: list[_PollTask] = []
        self._rescheduled = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_POLLS_IN_FLIGHT)
        self._in_flight = 0
        self._limiter = AdaptiveLimiter(
            MAX_POLLS_IN_FLIGHT,
            watch_latency=False,
            jitter=random.Random().random,  # noqa: S311 (spreads pauses; no secret)
        )

    async def poll_forever(self) -> None:
        """Poll until cancelled.

        Raises:
            ExceptionGroup: an internal error, such as a full disk.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive_new_polls())
            while True:
                self._rescheduled.clear()
                now = self._session.clock.monotonic()
                while self._heap and self._heap[0].due_s <= now:
                    await self._slots.acquire()
                    await self._wait_for_limiter()
                    group.create_task(self._poll(heapq.heappop(self._heap)))
                pause_s = self._heap[0].due_s - now if self._heap else None
                try:
                    async with asyncio.timeout(pause_s):
                        await self._rescheduled.wait()
                except TimeoutError:
                    continue

    async def _receive_new_polls(self) -> None:
        """Move acknowledged requests from the queue of the run state to the heap."""
        while True:
            added_at_s, acknowledged = await self._run_state.new_polls.get()
            task = _PollTask(0.0, acknowledged)
            if acknowledged.resume_position is None:
                delay_s = self._schedule.next_delay(0, self._age_s(task), *_size_class(acknowledged))
            else:
                task.pending_s = float("inf")  # it may have been done long ago: its first poll says nothing about times
                delay_s = self._schedule.resumed_poll_delay(acknowledged.resume_position)
            self._push(task, added_at_s + delay_s)

    def _push(self, task: _PollTask, due_s: float) -> None:
        task.due_s = due_s
        heapq.heappush(self._heap, task)
        self._rescheduled.set()

    def _reschedule(self, task: _PollTask, min_delay_s: float = 0.0) -> None:
        delay_s = self._schedule.next_delay(task.polls, self._age_s(task), *_size_class(task.acknowledged))
        self._push(task, self._session.clock.monotonic() + max(min_delay_s, delay_s))

    async def _wait_for_limiter(self) -> None:
        clock = self._session.clock
        while (wait_s := self._limiter.wait_s(clock.monotonic(), self._in_flight)) > 0:
            await clock.sleep(wait_s)
        self._limiter.on_admitted(clock.monotonic())
        self._in_flight += 1

    async def _poll(self, task: _PollTask) -> None:
        record = self._limiter.on_sent(self._session.clock.monotonic())
        try:
            task.polls += 1
            try:
                raw = await self._session.client.fetch_response(task.acknowledged.request_id)
            except (OutcomeUnknown, Unreachable) as error:  # a poll is free: it is repeated
                self._limiter.on_lost(record)
                await self._retry_or_give_up(task, str(error))
            else:
                await asyncio.shield(self._handle_answer(record, task, raw))
        finally:
            self._in_flight -= 1
            self._slots.release()

    async def _handle_answer(self, record: SendRecord, task: _PollTask, raw: RawAnswer) -> None:
        """Interpret an answer; bytes that are not strict JSON are written to disk first."""
        data, now = parse_object_strict(raw.body), self._session.clock.now()
        if data is None:
            received = ReceivedAnswer(raw.body, raw.status, now)
            await self._accounting.store_raw_answer(task.acknowledged.request, received)
        classification = classify_poll(raw, now=now, data=data)
        self._update_limiter(record, raw, classification)
        await self._record(task, raw, classification)

    def _update_limiter(self, record: SendRecord, raw: RawAnswer, classification: Classification) -> None:
        now = self._session.clock.monotonic()
        if classification.verdict is ResponseVerdict.THROTTLED:
            self._limiter.on_throttled(now, classification.retry_after_s, record)
        else:
            self._limiter.on_answer(now, now - record.sent_at, record)
        if classification.retry_after_s is None and (quota := parse_quota(raw.headers)) is not None:
            self._limiter.on_quota(now, quota)

    async def _record(self, task: _PollTask, raw: RawAnswer, classification: Classification) -> None:
        verdict = classification.verdict
        if verdict in {ResponseVerdict.ANSWERED, ResponseVerdict.FAILED}:
            self._schedule.on_done(*_size_class(task.acknowledged), task.pending_s, self._age_s(task))
            received = ReceivedAnswer(raw.body, raw.status, self._session.clock.now(), task.polls)
            await self._accounting.record_answer(task.acknowledged.request, received, Event.COLLECT, classification)
            self._run_state.end_poll(task.acknowledged)
        elif verdict is ResponseVerdict.DENIED:
            self._run_state.stop(AccessDenied(classification.error or "Access denied."))
            self._reschedule(task)
        elif verdict is ResponseVerdict.NOT_FOUND and self._age_s(task) > NEW_ID_S:
            await self._give_up(task, classification.error or "The service no longer has the answer.")
        else:
            reason = classification.error or f"status {raw.status}"
            await self._retry_or_give_up(task, reason, classification.retry_after_s or 0.0)

    def _age_s(self, task: _PollTask) -> float:
        """Seconds since the acknowledgement; the clock may have been set since an earlier process received it."""
        acknowledged = task.acknowledged
        earlier = acknowledged.resume_position is not None
        return self._session.clock.min_age_s(acknowledged.acked_at, earlier=earlier)

    async def _retry_or_give_up(self, task: _PollTask, reason: str, min_delay_s: float = 0.0) -> None:
        """Schedule the next poll, unless the service has deleted the answer by now."""
        if self._age_s(task) > self._schedule.deadline_s:
            await self._give_up(task, f"No answer before it expired; last: {reason}")
        else:
            task.pending_s = self._age_s(task)
            crowd_delay_s = min(MAX_DELAY_S, self._run_state.polls_outstanding / UNFINISHED_POLLS_PER_S)
            self._reschedule(task, max(min_delay_s, crowd_delay_s))

    async def _give_up(self, task: _PollTask, reason: str) -> None:
        await self._accounting.record_unknown_outcome(task.acknowledged.request, reason)
        self._run_state.end_poll(task.acknowledged)


def _size_class(acknowledged: AcknowledgedRequest) -> tuple[str, int]:
    """Return the media kind and the number of rows, by which completion times are learned."""
    rows = acknowledged.request.rows
    video = any(name.partition("?")[0].lower().endswith(VIDEO_SUFFIXES) for _, name in rows)
    return "video" if video else "image", len(rows)
