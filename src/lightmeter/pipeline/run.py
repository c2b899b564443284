"""The engine: what is pending becomes answers, never over budget, never twice.

First it collects what was acknowledged before a stop, then it settles what was left open, and only then it spends.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from lightmeter.client.pace import Pace
from lightmeter.client.polling import PollSchedule
from lightmeter.errors import AccessDenied, BudgetReached, OutOfCredits, Unreachable
from lightmeter.journal.changes import clear_over_budget, lose, mark_over_budget, put_meta, resend
from lightmeter.journal.items import Pending, count_by_status, pending_rows, totals
from lightmeter.journal.state import State
from lightmeter.journal.store import reading
from lightmeter.journal.submissions import Submitted, answer_of, submissions_in
from lightmeter.pipeline.batching import Batch, batches
from lightmeter.pipeline.collecting import Collector
from lightmeter.pipeline.progress import Progress
from lightmeter.pipeline.sending import Acked, Sender, Sent, sent_name
from lightmeter.pipeline.session import Session
from lightmeter.pipeline.standing import Standing
from lightmeter.pricing.rates import Rounding, request_price

__all__ = ["ALL_ROWS", "Engine", "Rows", "open_engine"]

MOST_RESENDS = 2

Rows = tuple[int, int]
"""A range of rows, first ≤ seq ≤ last."""

ALL_ROWS: Rows = (0, 1 << 62)


class Engine:
    """Runs what is pending in an open session. Made by `open_engine`."""

    def __init__(self, session: Session, standing: Standing, rows: Rows) -> None:
        self._rows = rows
        self.session = session
        self.standing = standing
        self._pace = Pace(
            session.header.options.max_concurrency,
            watch_latency=not session.endpoint.embedded,
            jitter=random.Random().random,  # noqa: S311 (spreads pauses; no secret)
        )
        self._collector = Collector(session, standing, PollSchedule())
        self._sender = Sender(session, standing, self._pace, self._collector.add)
        self._collector.sender = self._sender
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def collector(self) -> Collector:
        """Who polls."""
        return self._collector

    def look(self) -> Progress:
        """Where the run stands."""
        return self.standing.look(self.session.clock.monotonic())

    def stop(self) -> None:
        """Send nothing more; what is in flight is waited for, what is acknowledged is left to the next start."""
        self.standing.interrupted = True
        self.standing.stop()

    async def recover(self) -> None:
        """What an earlier process left: answers not read, requests acknowledged, requests whose end is unknown."""
        self.standing.phase = "collecting"
        with reading(self.session.out) as db:
            left = list(submissions_in(db, set(State) - {State.PLANNED, State.SETTLED, State.VOIDED}))
            unread = [(one, answer_of(db, one.submission_id)) for one in left if one.state in _UNREAD]
        for one, raw in unread:
            await self._sender.settle(_sent(one), raw or b"")
        for place, one in enumerate(left):
            if one.state is State.ACKED and one.request_id is not None:
                self._collector.add(Acked(_sent(one), one.request_id, one.acked_at or 0.0), place)
            elif one.state is State.SENT:
                await self._forget(one)
        await self._resend_lost()

    async def _forget(self, one: Submitted) -> None:
        why = "The process ended before the answer came."
        await self.session.journal.write(lose(one.submission_id, why, self.session.clock.now()))
        self.standing.moved("pending", "in_doubt", len(one.rows))

    async def _resend_lost(self) -> None:
        """The embedded service honours idempotency keys: there a lost request is asked for again, and paid once."""
        if not self.session.endpoint.embedded:
            return
        with reading(self.session.out) as db:
            lost = list(submissions_in(db, {State.UNCERTAIN}))
        for one in lost:
            await self.session.journal.write(resend(one.submission_id, self.session.clock.now()))
            self.standing.moved("in_doubt", "pending", len(one.rows))
            await self._sender.resend(_sent(one), [(url, path) for _, url, path in one.rows])

    async def settled(self) -> None:
        """Returns when no request is in flight any more, whatever became of it."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def spend(self) -> None:
        """Send the engine's rows that wait, until none is left or nothing more may be sent."""
        self.standing.phase = "running"
        while not self.standing.stopping.is_set():
            sent = await self._pass(*self._rows)
            await self._drain_sending()
            if not sent:
                break

    async def _pass(self, first: int, last: int) -> int:
        """One walk over the rows that wait; returns how many batches were sent."""
        options = self.session.header.options
        sent = 0
        with reading(self.session.out) as db:
            rows = pending_rows(db, first, last)
            alone = [row for row in rows if row.seq in self._sender.alone] if self._sender.alone else []
            rest = (row for row in pending_rows(db, first, last) if row.seq not in self._sender.alone)
            for group, size in ((rest, options.batch_size), (iter(alone), 1)):
                for batch in batches(group, size, self._price):
                    if not await self._admitted(batch):
                        if self.standing.stopping.is_set():
                            return sent
                        continue
                    self._launch(batch)
                    sent += 1
        return sent

    def _launch(self, batch: Batch) -> None:
        """Let a batch through: from now on its price is reserved and at risk."""
        self._pace.on_taken(self.session.clock.monotonic())
        self.standing.reserved += batch.hold
        self.standing.at_risk += batch.hold
        task = asyncio.create_task(self._sender.send(batch))
        self._sending.add(task)
        task.add_done_callback(partial(self._finished, batch.hold))

    def _finished(self, hold: int, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self.standing.at_risk -= hold
        self.standing.changed.set()  # only now there is room: whoever waits for it looks again
        if not task.cancelled() and (error := task.exception()) is not None:
            self.standing.crash = self.standing.crash or error
            self.standing.stop()

    def _price(self, row: Pending) -> int:
        """Most a row can cost, in whole credits; a row without a bound is held for what it costs at least."""
        pictures = max(1, row.frames_high or 1)
        return request_price(self.session.header.price_per_image_milli, (pictures,), Rounding.IMAGE)

    async def _admitted(self, batch: Batch) -> bool:
        """Wait until the batch may leave; False if it never may: the run stops, or the budget cannot hold it."""
        standing, clock = self.standing, self.session.clock
        while not standing.stopping.is_set():
            wait_s: float | None = self._pace.wait_s(clock.monotonic(), len(self._sending))
            if not standing.fits_budget(batch.hold):
                if not self._sending and not standing.polled:
                    return False
                wait_s = None  # a charge below its hold may make room
            elif not wait_s and self._risk_allows(batch):
                return True
            standing.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s or None):
                    await standing.changed.wait()
        return False

    def _risk_allows(self, batch: Batch) -> bool:
        """Always lets one request through: otherwise a cap below one price would wait for ever."""
        cap = self.session.header.options.max_at_risk
        return cap is None or not self._sending or self.standing.at_risk + batch.hold <= cap

    async def _drain_sending(self) -> None:
        """Wait for every request in flight.

        Raises:
            BaseException: what one of them raised that no service can cause.
        """
        await self.settled()
        if self.standing.crash is not None:
            raise self.standing.crash

    async def finish(self) -> None:
        """Wait for what is in flight and for what is being polled, as far as that can end; write down how it ended."""
        self.standing.phase = "draining"
        await self._drain_sending()
        while self.standing.polled and not self._cannot_poll():
            self.standing.changed.clear()
            await self.standing.changed.wait()
        for _ in range(MOST_RESENDS):
            if self.standing.counts["in_doubt"] and not self._cannot_poll():
                await self._resend_lost()
        await self._mark_rest()
        with reading(self.session.out) as db:
            self.standing.counts = Counter(count_by_status(db))

    def _cannot_poll(self) -> bool:
        return self.standing.interrupted or isinstance(self.standing.fatal, AccessDenied | Unreachable)

    async def _mark_rest(self) -> None:
        """Rows that still wait though nobody stopped the run: the budget, or the account, did not reach for them."""
        no_credits = isinstance(self.standing.fatal, OutOfCredits)
        if self.standing.stopping.is_set() and not no_credits:
            return
        change = mark_over_budget("no_credits" if no_credits else "budget", *self._rows)
        marked = await self.session.journal.write(change)
        if marked and not no_credits:
            self.standing.fatal = BudgetReached(
                f"The budget of {self.standing.budget} credits does not reach for {marked} rows.",
                hint="Go on with more: lightmeter resume DIR --budget CREDITS",
            )


_UNREAD = frozenset({State.ANSWERED, State.POLLED})


def _sent(one: Submitted) -> Sent:
    rows = tuple((seq, sent_name(url, path)) for seq, url, path in one.rows)
    return Sent(one.submission_id, one.hold, rows)


@asynccontextmanager
async def open_engine(session: Session, rows: Rows = ALL_ROWS) -> AsyncIterator[Engine]:
    """An engine for a range of rows, whose polling runs as long as the block lasts.

    Raises:
        AccessDenied: the key is wrong; asked first, because asking is free.
        Unreachable: the service cannot be reached; nothing was sent.
    """
    began = session.clock.monotonic()
    balance = await session.client.credits()
    meta = {"balance_after": str(balance)}
    if session.header.balance_before is None:
        meta["balance_before"] = str(balance)
    await session.journal.write(put_meta(meta))
    await session.journal.write(clear_over_budget(*rows))
    with reading(session.out) as db:
        counts = Counter(count_by_status(db))
        paid, held = totals(db)
    standing = Standing(counts, paid, held, began, session.header.options.budget)
    engine = Engine(session, standing, rows)
    polling = asyncio.create_task(engine.collector.serve())
    try:
        yield engine
    finally:
        engine.stop()
        await asyncio.shield(engine.settled())
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling
        seconds = session.header.seconds + session.clock.monotonic() - began
        meta = {"seconds": f"{seconds:.3f}"}
        with suppress(Exception):  # (the balance afterwards is worth having, never worth failing for)
            meta["balance_after"] = str(await session.client.credits())
        await session.journal.write(put_meta(meta))
