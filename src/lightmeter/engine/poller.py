"""Poll for the answers of requests that the service accepted. A heap orders them by the time of the next poll.

Polls have a rate limiter of their own, because a service may limit polls and other requests differently.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from functools import partial
from math import inf
from typing import Final

from lightmeter.client.classify import ResponseVerdict, classify_poll
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.polling import NEW_ID_S, PollSchedule
from lightmeter.client.rate_limit import AdaptiveLimiter, SendRecord
from lightmeter.engine.accounting import Accounting
from lightmeter.engine.in_flight import PolledRequest
from lightmeter.engine.limiter_state import learn_from_answer
from lightmeter.engine.request_telemetry import poll_span
from lightmeter.engine.run_state import RunState
from lightmeter.errors import AccessDenied, OutcomeUnknown, OutOfCredits, Unreachable
from lightmeter.journal.outcome import ReceivedAnswer
from lightmeter.journal.submission_states import Event
from lightmeter.run_session.session import Session
from lightmeter.wire.constants import VIDEO_SUFFIXES

MAX_POLLS_IN_FLIGHT: Final = 8
"""Most polls at the same time: enough for 400 polls a second at a latency of 20 ms."""

UNFINISHED_POLLS_PER_S: Final = 200.0
"""Most polls per second that find a request unfinished, over all requests.

A poll takes 150 µs of processor time, so even ten thousand requests take only 3 % of a core. The limit does not delay
the first poll for a request. It has no effect while fewer than 40 requests are polled for.
"""

MAX_DELAY_S: Final = 600.0
"""Most seconds by which `UNFINISHED_POLLS_PER_S` may delay the next poll for a request."""

UNREADABLE_S: Final = 60.0
"""Seconds after which a request is given up whose answers to polls cannot be read. The journal keeps their bytes."""

_REFUSED: Final = frozenset({ResponseVerdict.NOT_FOUND, ResponseVerdict.REFUSED, ResponseVerdict.NO_CREDITS})
"""Verdicts on a poll that brings no answer although the service is there: it will answer later polls alike."""


class Poller:
    """Takes requests from the queue `RunState.new_polls`, and polls for each until its answer comes or has expired."""

    def __init__(self, session: Session, run_state: RunState, accounting: Accounting, schedule: PollSchedule) -> None:
        self._session = session
        self._run_state = run_state
        self._accounting = accounting
        self._schedule = schedule
        self._heap: list[PolledRequest] = []
        self._rescheduled = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_POLLS_IN_FLIGHT)
        self._in_flight = 0
        self._limiter = AdaptiveLimiter(
            MAX_POLLS_IN_FLIGHT,
            watch_latency=False,
            jitter=random.Random().random,  # noqa: S311 (spreads pauses; no secret)
        )

    async def poll_forever(self) -> None:
        """Poll for answers until cancelled; raise ExceptionGroup for an internal error, such as a full disk."""
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
        """Take requests from the queue `RunState.new_polls`, and schedule the first poll for each."""
        while True:
            polled = await self._run_state.new_polls.get()
            if polled.resume_position is None:
                delay_s = self._schedule.next_delay(0, self._age_s(polled), *_size_class(polled))
            else:
                polled.pending_s = inf  # it may have been done long ago: its first poll says nothing about times
                delay_s = self._schedule.resumed_poll_delay(polled.resume_position)
            self._push(polled, polled.due_s + delay_s)

    def _push(self, polled: PolledRequest, due_s: float) -> None:
        polled.due_s = due_s
        heapq.heappush(self._heap, polled)
        self._rescheduled.set()

    def _reschedule(self, polled: PolledRequest, min_delay_s: float = 0.0) -> None:
        delay_s = self._schedule.next_delay(polled.polls, self._age_s(polled), *_size_class(polled))
        self._push(polled, self._session.clock.monotonic() + max(min_delay_s, delay_s))

    async def _wait_for_limiter(self) -> None:
        clock = self._session.clock
        while (wait_s := self._limiter.wait_s(clock.monotonic(), self._in_flight)) > 0:
            await clock.sleep(wait_s)
        self._limiter.on_admitted(clock.monotonic())
        self._in_flight += 1

    async def _poll(self, polled: PolledRequest) -> None:
        record = self._limiter.on_sent(self._session.clock.monotonic())
        try:
            polled.polls += 1
            try:
                with poll_span(polled) as exchange:
                    raw = await self._session.client.fetch_response(polled.request_id)
                    exchange.end(raw, partial(classify_poll, raw, now=self._session.clock.now()))
            except (OutcomeUnknown, Unreachable) as error:  # a poll is free: it is repeated
                self._limiter.on_lost(record)
                await asyncio.shield(self._handle_lost(polled, error))
            else:
                await asyncio.shield(self._handle_answer(record, polled, raw))
        finally:
            self._in_flight -= 1
            self._slots.release()

    async def _handle_lost(self, polled: PolledRequest, error: OutcomeUnknown | Unreachable) -> None:
        if error.body:
            received = ReceivedAnswer(error.body, error.http_status or 0, self._session.clock.now(), polled.polls)
            await self._accounting.store(polled.request, received)
            polled.unread = polled.unread or received
        await self._retry_or_give_up(polled, str(error))

    async def _handle_answer(self, record: SendRecord, polled: PolledRequest, raw: RawAnswer) -> None:
        received, classification = await self._accounting.receive(polled.request, raw, classify_poll, polled.polls)
        verdict = classification.verdict
        learn_from_answer(self._limiter, record, raw, classification, self._session.clock.monotonic())
        if verdict in {ResponseVerdict.ANSWERED, ResponseVerdict.FAILED}:
            self._schedule.on_done(*_size_class(polled), polled.pending_s, self._age_s(polled))
            await self._accounting.record_answer(polled.request, received, Event.COLLECT, classification)
            self._run_state.end_poll(polled)
        elif verdict is ResponseVerdict.DENIED:
            self._run_state.stop(AccessDenied(classification.error or "Access denied."))
            self._reschedule(polled)
        elif verdict in _REFUSED and self._age_s(polled) > NEW_ID_S:
            error = classification.error or "The service no longer has the answer."
            await self._give_up(polled, error)
            if verdict is ResponseVerdict.NO_CREDITS:
                self._run_state.stop(OutOfCredits(error, hint="Add credits, then: lightmeter resume DIR"))
        else:
            if verdict is ResponseVerdict.PROCESSING:
                polled.unread = None
            elif raw.is_success:
                polled.unread = polled.unread or received
            reason = classification.error or f"status {raw.status}"
            await self._retry_or_give_up(polled, reason, classification.retry_after_s or 0.0)

    def _age_s(self, polled: PolledRequest) -> float:
        """Return the seconds since the service accepted a request, even if the machine's clock was set in between."""
        return self._session.clock.min_age_s(polled.acked_at, earlier=polled.resume_position is not None)

    async def _retry_or_give_up(self, polled: PolledRequest, reason: str, min_delay_s: float = 0.0) -> None:
        """Schedule the next poll for a request; give up if its answer has expired, or could not be read for some time.

        `reason` says why the last poll had no result; `min_delay_s` is the least number of seconds to wait.
        """
        if self._age_s(polled) > self._schedule.deadline_s:
            await self._give_up(polled, f"No answer before it expired; last: {reason}")
        elif polled.unread is not None and self._session.clock.now() - polled.unread.at > UNREADABLE_S:
            await self._give_up(polled, f"No answer that can be read; last: {reason}")
        else:
            polled.pending_s = self._age_s(polled)
            crowd_delay_s = min(MAX_DELAY_S, self._run_state.polls_outstanding / UNFINISHED_POLLS_PER_S)
            self._reschedule(polled, max(min_delay_s, crowd_delay_s))

    async def _give_up(self, polled: PolledRequest, reason: str) -> None:
        if polled.unread is not None:  # a later answer, such as "not found", may have taken its place in the journal
            await self._accounting.store(polled.request, polled.unread)
        await self._accounting.record_unknown_outcome(polled.request, reason)
        self._run_state.end_poll(polled)


def _size_class(polled: PolledRequest) -> tuple[str, int]:
    """Return (`image` or `video`, number of rows) of a request.

    For each such pair, the poll schedule learns how long answers take.
    """
    rows = polled.request.rows
    video = any(name.partition("?")[0].lower().endswith(VIDEO_SUFFIXES) for _, name in rows)
    return "video" if video else "image", len(rows)
