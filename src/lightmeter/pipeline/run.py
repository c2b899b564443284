"""The engine: what is pending becomes answers, never over budget, never twice.

First it collects what was acknowledged before a stop, then it finds out what became of what was lost, and only then it
spends.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from lightmeter.client.pace import Pace
from lightmeter.client.polling import PollSchedule
from lightmeter.errors import AccessDenied, BudgetReached, OutcomeUnknown, OutOfCredits, Unreachable
from lightmeter.journal.changes import clear_over_budget, mark_over_budget, put_meta
from lightmeter.journal.items import Pending, count_by_status, pending_rows, totals
from lightmeter.journal.proofs import release
from lightmeter.journal.state import State
from lightmeter.journal.store import reading
from lightmeter.pipeline.batching import Batch, batches
from lightmeter.pipeline.bookkeeping import Books
from lightmeter.pipeline.collecting import Collector
from lightmeter.pipeline.prices import Prices, learned
from lightmeter.pipeline.progress import Progress
from lightmeter.pipeline.reconciling import Reconciler
from lightmeter.pipeline.recovery import take_up
from lightmeter.pipeline.sending import Sender
from lightmeter.pipeline.session import Session
from lightmeter.pipeline.standing import Standing

__all__ = ["ALL_ROWS", "Engine", "Rows", "open_engine"]

MOST_RESENDS = 2

_LATER: Final = "Go on later: lightmeter resume DIR"

Rows = tuple[int, int]
"""A range of rows, first ≤ seq ≤ last."""

ALL_ROWS: Rows = (0, 1 << 62)


class Engine:
    """Runs what is pending in an open session. Made by `open_engine`."""

    def __init__(self, session: Session, standing: Standing, prices: Prices, rows: Rows, pay_again: int = 0) -> None:
        self._rows = rows
        self._pay_again = pay_again
        self.session = session
        self.standing = standing
        self._prices = prices
        self._pace = Pace(
            session.header.options.max_concurrency,
            watch_latency=not session.endpoint.embedded,
            jitter=random.Random().random,  # noqa: S311 (spreads pauses; no secret)
        )
        self._books = Books(session, standing, prices, session.key)
        self._collector = Collector(session, standing, self._books, PollSchedule())
        self._sender = Sender(session, standing, self._books, self._pace, self._collector.add)
        self.reconciler = Reconciler(session, standing, self._books, self._sender)
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
        await take_up(self.session, self._books, self._collector)
        if self.standing.lost or (self.standing.counts["in_doubt"] and self.session.header.options.sole_spender):
            await self._resolve()
        if self._pay_again and not self.standing.stopping.is_set():
            now = self.session.clock.now()
            await self.session.journal.write(release(self._pay_again, now))
            with reading(self.session.out) as db:
                self.standing.counts = Counter(count_by_status(db))

    async def _resolve(self) -> int:
        """Find out what became of lost requests, once nothing else is going on; returns how many rows wait again."""
        if not self.session.endpoint.embedded:
            await self._collected()
        if self._cannot_poll():
            return 0
        return await self.reconciler.resolve()

    async def _collected(self) -> None:
        """Wait until nothing is polled for any more, as far as that can end.

        Raises:
            BaseException: what ended the polling that no service can cause, such as a full disk.
        """
        while self.standing.polled and not self._cannot_poll():
            self.standing.changed.clear()
            await self.standing.changed.wait()
        if self.standing.crash is not None:
            raise self.standing.crash

    def polling_ended(self, task: asyncio.Task[None]) -> None:
        """To be told when polling ends: by itself it never does."""
        if not task.cancelled() and (error := task.exception()) is not None:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self.standing.crash = self.standing.crash or error
            self.standing.stop()

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
                    admitted = await self._admitted(batch)
                    if admitted is None:
                        if self.standing.stopping.is_set():
                            return sent
                        continue
                    self._launch(admitted)
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
        return self._prices.most([row])

    async def _admitted(self, batch: Batch) -> Batch | None:
        """Wait until the batch may leave; None if it never may: the run stops, or the budget cannot hold it."""
        standing, clock = self.standing, self.session.clock
        while not standing.stopping.is_set():
            batch = replace(batch, hold=self._prices.most(batch.rows))  # it may be known better by now
            wait_s: float | None = self._pace.wait_s(clock.monotonic(), len(self._sending))
            if not standing.fits_budget(batch.hold) or standing.key_spent:
                if not self._sending and not standing.polled:
                    return None
                wait_s = None  # a charge below its hold may make room
            elif self._alone(batch) and (self._sending or (standing.polled and not self._prices.known(batch.rows))):
                wait_s = None
            elif self._alone(batch) and standing.lost and not self.session.endpoint.embedded:
                await self._resolve()  # before the next one leaves: then what became of it can be told
                if standing.lost:
                    standing.stop(OutcomeUnknown("What became of a lost request cannot be told now.", hint=_LATER))
                continue
            elif not wait_s and self._risk_allows(batch):
                return batch
            standing.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s or None):
                    await standing.changed.wait()
        return None

    def _alone(self, batch: Batch) -> bool:
        """Whether this one leaves with no other in flight: then what becomes of it can always be told.

        So go the first of each kind, whose price nobody knows yet, and the last that the budget holds.
        """
        options = self.session.header.options
        if self.session.endpoint.embedded:  # what is lost there is asked for again, and its prices are our own
            return options.careful
        free = self.standing.free
        ending = free is not None and free < batch.hold * options.max_concurrency
        return options.careful or ending or not self._prices.known(batch.rows)

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
        await self._collected()
        for _ in range(MOST_RESENDS):
            if self.session.endpoint.embedded and self.standing.counts["in_doubt"] and not self._cannot_poll():
                await self._resolve()
        while self.standing.lost and not self.session.endpoint.embedded and await self._resolve():
            await self.spend()
            self.standing.phase = "draining"
            await self._collected()
        await self._mark_rest()
        with reading(self.session.out) as db:
            self.standing.counts = Counter(count_by_status(db))

    def _cannot_poll(self) -> bool:
        standing = self.standing
        hopeless = isinstance(standing.fatal, AccessDenied | Unreachable) or standing.crash is not None
        return standing.interrupted or hopeless

    async def _mark_rest(self) -> None:
        """Rows that still wait though nobody stopped the run: a budget, or the account, did not reach for them."""
        no_credits = isinstance(self.standing.fatal, OutOfCredits)
        if self.standing.stopping.is_set() and not no_credits:
            return
        key = self.session.key if self.standing.key_spent else None
        reason = "no_credits" if no_credits else "budget" if key is None else "key_budget"
        marked = await self.session.journal.write(mark_over_budget(reason, *self._rows))
        if marked and key is not None:
            self.standing.fatal = BudgetReached(
                f"The budget of the key, {key.credits} credits a {key.length}, does not reach for {marked} rows.",
                hint="Go on later, or raise LIGHTMETER_KEY_BUDGET: lightmeter resume DIR",
            )
        elif marked and not no_credits:
            self.standing.fatal = BudgetReached(
                f"The budget of {self.standing.budget} credits does not reach for {marked} rows.",
                hint="Go on with more: lightmeter resume DIR --budget CREDITS",
            )


@asynccontextmanager
async def open_engine(session: Session, rows: Rows = ALL_ROWS, *, pay_again: int = 0) -> AsyncIterator[Engine]:
    """An engine for a range of rows, whose polling runs as long as the block lasts.

    `pay_again` allows so many credits for sending again what may have been paid for already.

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
        prices = Prices(learned(db, session.header), trusted=session.endpoint.embedded)
        ((lost,),) = db.execute("SELECT count(*) FROM submissions WHERE state = ?", (State.UNCERTAIN,))
    standing = Standing(counts, paid, held, began, session.header.options.budget, lost=lost)
    engine = Engine(session, standing, prices, rows, pay_again)
    await engine.reconciler.open_window(balance)
    polling = asyncio.create_task(engine.collector.serve())
    polling.add_done_callback(engine.polling_ended)
    try:
        yield engine
    finally:
        engine.stop()
        await asyncio.shield(engine.settled())
        polling.cancel()
        await asyncio.wait({polling})
        seconds = session.header.seconds + session.clock.monotonic() - began
        meta = {"seconds": f"{seconds:.3f}"}
        with suppress(Exception):  # (the balance afterwards is worth having, never worth failing for)
            meta["balance_after"] = str(await session.client.credits())
        await session.journal.write(put_meta(meta))
