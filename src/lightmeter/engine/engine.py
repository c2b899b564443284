"""The engine: what is pending becomes answers, never over budget, never twice.

First it collects what was acknowledged before a stop, then it finds out what became of what was lost, and only then it
spends.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from lightmeter import sqlite
from lightmeter.client.polling import PollSchedule
from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.clock import STEP_S
from lightmeter.engine.accounting import Accounting
from lightmeter.engine.dispatcher import Dispatcher
from lightmeter.engine.limiter_state import persisted_limiter
from lightmeter.engine.poller import Poller
from lightmeter.engine.reconciler import Reconciler
from lightmeter.engine.recovery import recover_open_submissions
from lightmeter.engine.run_state import RunState
from lightmeter.engine.sender import Sender
from lightmeter.engine.session import Session
from lightmeter.engine.uploads import Uploads
from lightmeter.errors import AccessDenied, BudgetReached, OutOfCredits, Unreachable
from lightmeter.export.answer_check import rows_with_invalid_answers
from lightmeter.journal.answer_retries import add_retries, clear_not_retried, mark_not_retried
from lightmeter.journal.balance_proofs import requeue_unanswered_rows
from lightmeter.journal.charges import credit_totals
from lightmeter.journal.commands import clear_over_budget, mark_over_budget, put_meta
from lightmeter.journal.header import put_balance_meta
from lightmeter.journal.items import count_by_status
from lightmeter.journal.state import State
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submissions import count_submissions_in, in_doubt_totals
from lightmeter.money.request_prices import MAX_RECENT_CHARGES, RequestPrices, learner_from_journal
from lightmeter.planning.progress import Progress
from lightmeter.tables.gc_control import collector_eased

__all__ = ["ALL_ROWS", "Engine", "SeqRange", "open_engine"]

MAX_RESENDS = 2

SeqRange = tuple[int, int]
"""A range of rows, first ≤ seq ≤ last."""

ALL_ROWS: SeqRange = (0, 1 << 62)


class Engine:
    """Runs what is pending in an open session. Made by `open_engine`."""

    def __init__(
        self, session: Session, standing: RunState, prices: RequestPrices, rows: SeqRange, pay_again: int = 0
    ) -> None:
        self._rows = rows
        self._pay_again = pay_again
        self._step_s = 0.0
        self.session = session
        self.standing = standing
        self.pace = AdaptiveLimiter(
            session.header.options.max_concurrency,
            watch_latency=not session.endpoint.embedded,
            jitter=random.Random().random,  # noqa: S311 (spreads pauses; no secret)
        )
        self._books = Accounting(session, standing, prices, session.key)
        self._collector = Poller(session, standing, self._books, PollSchedule())
        self._sender = Sender(session, standing, self._books, self.pace, self._collector.add)
        self.reconciler = Reconciler(session, standing, self._books, self._sender)
        self._spender = Dispatcher(session, standing, prices, self.pace, self._sender, resolve=self._resolve)

    @property
    def collector(self) -> Poller:
        """Who polls."""
        return self._collector

    @property
    def uploads(self) -> Uploads:
        """Who fetches what is sent as bytes."""
        return self._books.uploads

    def look(self) -> Progress:
        """Where the run stands."""
        self._notice_clock()
        return self.standing.look(self.session.clock.monotonic())

    def _notice_clock(self) -> None:
        """Say once when the machine's clock was set: nothing depends on it, but times in the tables may look odd."""
        step_s = self.session.clock.step_s
        if abs(step_s - self._step_s) >= STEP_S:
            moved = step_s - self._step_s
            self._step_s = step_s
            self.standing.note(
                f"The machine's clock was set {'forward' if moved > 0 else 'back'} by {abs(moved):.0f} s. The run "
                "measures time by another clock, and goes on."
            )

    def stop(self) -> None:
        """Send nothing more; what is in flight is waited for, what is acknowledged is left to the next start."""
        self.standing.interrupted = True
        self.standing.stop()

    async def recover(self) -> None:
        """What an earlier process left: answers not read, requests acknowledged, requests whose end is unknown."""
        self.standing.phase = "collecting"
        await recover_open_submissions(self.session, self._books, self._collector)
        if self.standing.lost or (self.session.header.options.sole_spender and self._is_in_doubt()):
            await self._resolve()
        if self._pay_again and not self.standing.stopping.is_set():
            now = self.session.clock.now()
            await self.session.journal.write(requeue_unanswered_rows(self._pay_again, now))
            with open_read_only(self.session.out) as db:
                self.standing.counts = Counter(count_by_status(db))

    def _is_in_doubt(self) -> bool:
        with open_read_only(self.session.out) as db:
            return in_doubt_totals(db).requests > 0

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
        await self._spender.settled()

    async def spend(self) -> int:
        """Send the engine's rows that wait, until none is left or nothing more may be sent; returns requests sent."""
        self.standing.phase = "running"
        all_sent = 0
        while not self.standing.stopping.is_set():
            sent = await self._spender.walk(*self._rows)
            await self._drain_sending()
            all_sent += sent
            if not sent:
                break
        return all_sent

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
        while self._books.waits and await self.spend():  # what came to nothing while it was polled for
            self.standing.phase = "draining"
            await self._collected()
        for _ in range(MAX_RESENDS):
            if self.session.endpoint.embedded and self.standing.counts["in_doubt"] and not self._cannot_poll():
                await self._resolve()
        while self.standing.lost and not self.session.endpoint.embedded and await self._resolve():
            await self.spend()
            self.standing.phase = "draining"
            await self._collected()
        await self._ask_again()
        if not self._cannot_poll():
            await self.reconciler.check_balance()
        await self._mark_rest()
        with open_read_only(self.session.out) as db:
            self.standing.counts = Counter(count_by_status(db))

    async def _ask_again(self) -> None:
        """Ask the user's question once more about rows whose answer is not valid, with what is wrong in the prompt.

        The rows' first answers are on disk and looked at anew by every start; the journal knows which rows were asked
        about again, so that none is asked about a third time.
        """
        ask, out, options = self.session.header.options.ask, self.session.out, self.session.header.options
        if ask is None:
            return
        if not self.standing.stopping.is_set():
            found = await asyncio.to_thread(rows_with_invalid_answers, out, ask, options.backends, *self._rows)
            await self.session.journal.write(clear_not_retried(*self._rows))
            await self.session.journal.write(add_retries(found))
            if found:
                self.standing.note(f"Some answers to {ask.name} are not valid: their rows are asked about once more.")
        while not self.standing.stopping.is_set() and await self._spender.dispatch_retries(*self._rows):
            await self._drain_sending()
            await self._collected()
            if self.standing.lost:
                await self._resolve()
        self.standing.retries_pending = self.standing.interrupted
        if not self.standing.stopping.is_set() or isinstance(self.standing.fatal, OutOfCredits):
            await self.session.journal.write(mark_not_retried(self._why_not(), *self._rows))

    def _why_not(self) -> str:
        """Why nothing more is paid for: the account, the budget of the key, or that of the run."""
        if isinstance(self.standing.fatal, OutOfCredits):
            return "no_credits"
        return "budget" if self.session.key is None or not self.standing.key_budget_exhausted else "key_budget"

    def _cannot_poll(self) -> bool:
        standing = self.standing
        hopeless = isinstance(standing.fatal, AccessDenied | Unreachable) or standing.crash is not None
        return standing.interrupted or hopeless

    async def _mark_rest(self) -> None:
        """Rows that still wait though nobody stopped the run: a budget, or the account, did not reach for them."""
        no_credits = isinstance(self.standing.fatal, OutOfCredits)
        if self.standing.stopping.is_set() and not no_credits:
            return
        key, reason = self.session.key if self.standing.key_budget_exhausted else None, self._why_not()
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
        elif self._spender.rows_over_caps and self.standing.fatal is None:
            self.standing.fatal = BudgetReached(
                f"{self._spender.rows_over_caps} rows may cost more than --max-at-risk allows for one, "
                "or have no upper price.",
                hint="Go on with more: lightmeter resume DIR --max-at-risk CREDITS",
            )


def _prices(db: sqlite.Connection, session: Session) -> RequestPrices:
    header = session.header
    trusted, retry_milli = session.endpoint.embedded, header.retry_per_image_milli
    return RequestPrices(learner_from_journal(db, header, MAX_RECENT_CHARGES), trusted=trusted, retry_milli=retry_milli)


@asynccontextmanager
async def open_engine(session: Session, rows: SeqRange = ALL_ROWS, *, pay_again: int = 0) -> AsyncIterator[Engine]:
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
    await session.journal.write(put_balance_meta(meta))
    await session.journal.write(clear_over_budget(*rows))
    with open_read_only(session.out) as db:
        counts = Counter(count_by_status(db))
        paid, held = credit_totals(db)
        prices = _prices(db, session)
        lost = count_submissions_in(db, State.UNCERTAIN)
    standing = RunState(counts, paid, held, began, session.header.options.budget, lost=lost)
    if (step_s := session.clock.restart_step_s) is not None and abs(step_s) >= STEP_S:
        standing.note(
            f"The machine's clock was set by {step_s:+.0f} s since the run was last begun: times that "
            "were written down before are not relied on."
        )
    engine = Engine(session, standing, prices, rows, pay_again)
    await engine.reconciler.check_opening_balance(balance)
    polling = asyncio.create_task(engine.collector.serve())
    polling.add_done_callback(engine.polling_ended)
    try:
        async with engine.uploads, persisted_limiter(session, engine.pace):
            with collector_eased():
                yield engine
    finally:
        engine.stop()
        await asyncio.shield(engine.settled())
        polling.cancel()
        await asyncio.wait({polling})
        seconds = session.header.seconds + session.clock.monotonic() - began
        meta = {"seconds": f"{seconds:.3f}"}
        if standing.notes:
            meta["notes"] = json.dumps(sorted({*session.header.notes, *standing.notes}))
        change = put_meta(meta)
        with suppress(Exception):  # (the balance afterwards is worth having, never worth failing for)
            change = put_balance_meta({**meta, "balance_after": str(await session.client.credits())})
        await session.journal.write(change)
