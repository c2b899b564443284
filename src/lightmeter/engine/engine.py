"""Send the pending rows of a run and collect their answers: never over budget, never paid twice.

The engine works in this order: it collects the answers to requests that an earlier process left, finds out whether
requests with an unknown outcome were charged, and only then sends new requests. Its parts share a `RunState`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from lightmeter.client.polling import PollSchedule
from lightmeter.clock import STEP_S
from lightmeter.engine.accounting import Accounting, initial_name_reliability
from lightmeter.engine.batching import NameReliabilityTracker
from lightmeter.engine.budget_errors import caps_reached, key_budget_reached, run_budget_reached
from lightmeter.engine.dispatcher import Dispatcher
from lightmeter.engine.frame_extraction import FrameExtractor
from lightmeter.engine.limiter_state import open_limiter, persisted_limiter
from lightmeter.engine.poller import Poller
from lightmeter.engine.reconciler import Reconciler
from lightmeter.engine.recovery import recover_open_submissions
from lightmeter.engine.run_state import RunState
from lightmeter.engine.sender import Sender
from lightmeter.engine.url_uploads import UploadFetcher, UploadSelection
from lightmeter.errors import OutcomeUnknown, OutOfCredits
from lightmeter.export.ask_answer_check import rows_with_invalid_answers
from lightmeter.journal.balance_proofs import requeue_unanswered_rows
from lightmeter.journal.commands.alerts import add_notes
from lightmeter.journal.commands.submissions import (
    add_retries,
    mark_over_budget,
    put_meta,
    requeue_lost_rows,
    requeue_unsent_rows,
    set_retry_obstacle,
)
from lightmeter.journal.header import put_balance_meta
from lightmeter.journal.queries.charges import credit_totals, has_charge_since
from lightmeter.journal.queries.items import count_sendable_rows_by_status
from lightmeter.journal.queries.pending_rows import rows_lost_earlier
from lightmeter.journal.queries.submissions import count_submissions_in, in_doubt_totals
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submission_states import State
from lightmeter.money.request_prices import MAX_RECENT_CHARGES, RequestPrices, learner_from_journal
from lightmeter.planning.preflight import require_balance
from lightmeter.planning.progress import Progress
from lightmeter.run_session.session import Session
from lightmeter.tables.gc_control import reduce_gc

MAX_RESENDS: Final = 2
"""Most times that a run, at its end, sends lost requests to the embedded service again; then they stay in doubt."""

PlaceRange = tuple[int, int]
"""(First place, last place) of a range of rows. Places count in the order of sending, by default manifest order."""

ALL_ROWS: PlaceRange = (0, 1 << 62)


class Engine:
    """Sends the pending rows of a run and collects the answers. `open_engine` creates it."""

    def __init__(
        self, session: Session, run_state: RunState, prices: RequestPrices, rows: PlaceRange, pay_again: int = 0
    ) -> None:
        self._rows = rows
        self._pay_again = pay_again
        self._prices = prices
        self._noted_step_s = 0.0
        self.session = session
        self.run_state = run_state
        self.limiter = open_limiter(session.header.options.max_concurrency, session.endpoint)
        self.uploads = UploadFetcher(session.max_per_host, session.robots)
        self._accounting = Accounting(session, run_state, prices)
        self._poller = Poller(session, run_state, self._accounting, PollSchedule())
        self.frames = FrameExtractor(session.out, self.uploads.prober)
        self._sender = Sender(session, run_state, self._accounting, self.limiter, self.uploads, self.frames)
        self.reconciler = Reconciler(session, run_state, self._accounting, self._sender)
        self._dispatcher = Dispatcher(session, run_state, prices, self.limiter, self._sender)

    def progress(self) -> Progress:
        """Return the progress of the run. If the machine's clock was set, add a note about that to the run's notes."""
        step_s = self.session.clock.step_s
        if abs(change_s := step_s - self._noted_step_s) >= STEP_S:
            self._noted_step_s = step_s
            self.run_state.add_note(
                f"The machine's clock was set {'forward' if change_s > 0 else 'back'} by {abs(change_s):.0f} s. The "
                "run measures time by another clock and continues."
            )
        return self.run_state.progress(self.session.clock.monotonic())

    async def poll(self) -> None:
        """Poll the service for answers until cancelled; let an internal error, such as a full disk, stop the run."""
        try:
            await self._poller.poll_forever()
        except Exception as error:  # noqa: BLE001 (whatever it is: it is raised once all requests have ended)
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            self.run_state.fail(error)

    async def recover(self) -> None:
        """Continue the requests that an earlier process left unfinished.

        Record stored answers, poll for the answers of accepted requests, and find out whether other requests were
        charged.
        """
        self.run_state.enter_phase("collecting")
        await recover_open_submissions(self.session, self.run_state, self._accounting, self._sender)
        sole_spender = self.session.header.options.sole_spender
        with open_read_only(self.session.out) as db:
            in_doubt = in_doubt_totals(db).requests > 0
        if self.run_state.unresolved_requests or (sole_spender and in_doubt):
            await self._resolve()
        if self._pay_again and not self.run_state.stopping.is_set():
            change = requeue_unanswered_rows(self._pay_again, self.session.clock.now())
            credits_, _ = await self.session.journal.write(change)
            await self._requeue_rows_lost_earlier(self._pay_again - credits_)
            self._reload_counts()

    async def _requeue_rows_lost_earlier(self, allowance: int) -> None:
        """Make rows pending again if their requests got no answer in an earlier run of the folder.

        Those requests may have been charged. The rows made pending may cost at most `allowance` credits together.
        """
        seqs = []
        with open_read_only(self.session.out) as db:
            for row in rows_lost_earlier(db, *self._rows):
                price = None if row.frames_high is None else self._prices.max_credits([row])
                if price is not None and price <= allowance:
                    allowance -= price
                    seqs.append(row.seq)
        await self.session.journal.write(requeue_lost_rows(seqs))

    def _reload_counts(self) -> None:
        with open_read_only(self.session.out) as db:
            self.run_state.set_counts(count_sendable_rows_by_status(db))

    async def _resolve(self) -> int:
        """Find out whether requests without an answer were charged; return how many rows are pending again."""
        if not self.session.endpoint.embedded:
            await self._wait_for_polls()
        return 0 if self.run_state.cannot_poll else await self.reconciler.resolve()

    async def _wait_for_polls(self) -> None:
        """Wait until no answer is polled for any more, or until waiting cannot help (`RunState.cannot_poll`).

        Return in both cases; but if an internal error stopped the run, such as a full disk, raise it then.
        """
        while self.run_state.polls_outstanding and not self.run_state.cannot_poll:
            await self.run_state.wait_for_change()
        self.run_state.raise_internal_error()

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight; raise no error, whatever the outcome of the requests."""
        await self._dispatcher.wait_until_idle()

    async def _wait_for_requests(self) -> None:
        """Wait until no request is in flight. If an internal error stopped the run, raise it then."""
        await self.wait_until_idle()
        self.run_state.raise_internal_error()

    async def spend(self) -> int:
        """Send rows until none is pending, the budget is spent or the run stops; return the number of requests sent."""
        self.run_state.enter_phase("running")
        total = 0
        while not self.run_state.stopping.is_set():
            sent = await self._dispatcher.dispatch_rows(*self._rows)
            total += sent
            if await self._resolve_if_required():
                continue
            await self._wait_for_requests()
            if not sent:
                break
        return total

    async def spend_while_planning(self, planning: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that plans rows, and send rows as soon as they are planned (`--stream`).

        Return when all rows are planned and sent. If nothing more may be sent, cancel the planning and return, too.
        """
        self.run_state.enter_phase("running")
        self.run_state.start_planning()
        task = asyncio.create_task(planning)
        try:
            await self._send_planned_rows()
        finally:
            task.cancel()
            await asyncio.wait({task})
        await self._wait_for_requests()

    async def _send_planned_rows(self) -> None:
        state, first = self.run_state, self._rows[0]
        while not state.stopping.is_set():
            last = state.last_planned
            if first > last:
                if not state.planning:
                    return
                await state.wait_for_change()
                continue
            await self._dispatcher.dispatch_rows(first, last)  # each row is looked at once: none can be sent twice
            if await self._resolve_if_required():
                await self._wait_for_requests()
            else:
                first = last + 1

    async def _resolve_if_required(self) -> bool:
        """Find out what unanswered requests cost, if this must be known before the next request is sent.

        Stop the run if this cannot be found out. Return whether it had to be found out.
        """
        if not self.run_state.must_resolve:
            return False
        self.run_state.set_must_resolve(required=False)
        await self._resolve()
        if self.run_state.unresolved_requests:
            hint = "Continue later: lightmeter resume DIR"
            self.run_state.stop(OutcomeUnknown("The outcome of a lost request cannot be determined now.", hint=hint))
        return True

    async def finish(self) -> None:
        """Wait for all answers, and find out what lost and failed requests cost.

        Then repeat the user's question (`--ask`) for rows with an invalid answer. If failed requests turn out to be
        cheaper than their holds, send the rows that the freed credits pay for. At last, mark the rows that the budget
        does not pay for.
        """
        await self._drain()
        await self._send_again()
        while await self._free_credits():
            await self.spend()
            await self._drain()
            await self._send_again()
        await self._mark_unaffordable_rows()
        self._reload_counts()

    async def _send_again(self) -> None:
        """Send rows again after free failures and lost requests, and repeat questions that got an invalid answer."""
        state, embedded = self.run_state, self.session.endpoint.embedded
        while state.has_rows_to_resend and await self.spend():  # free failures that came by polling
            await self._drain()
        for _ in range(MAX_RESENDS):
            if embedded and state.counts["in_doubt"] and not state.cannot_poll:
                await self._resolve()
        while state.unresolved_requests and not embedded and await self._resolve():
            await self.spend()
            await self._drain()
        await self._retry_invalid_answers()

    async def _free_credits(self) -> bool:
        """Find out from the balance what failed requests cost. Return whether that freed credits reserved for them."""
        held = self.run_state.held
        if not self.run_state.cannot_poll:
            await self.reconciler.check_balance()
        return self.run_state.held < held

    async def _drain(self) -> None:
        """Wait until no request is in flight and no answer is polled for."""
        self.run_state.enter_phase("draining")
        await self._wait_for_requests()
        await self._wait_for_polls()

    async def _retry_invalid_answers(self) -> None:
        """Repeat the user's question (`--ask`) once for each invalid answer, with the error in the prompt.

        Each start of the run validates the stored first answers again. The journal records each repeated question, so
        that no later start repeats it again.
        """
        state, options = self.run_state, self.session.header.options
        ask = options.ask
        if ask is None:
            return
        if not state.stopping.is_set():
            out = self.session.out
            invalid = await asyncio.to_thread(rows_with_invalid_answers, out, ask, options.backends, *self._rows)
            await self.session.journal.write(set_retry_obstacle(None, *self._rows))
            await self.session.journal.write(add_retries(invalid))
            if invalid:
                state.add_note(f"Some answers to {ask.name} are not valid: the question is repeated for their rows.")
        while not state.stopping.is_set():
            sent = await self._dispatcher.dispatch_retries(*self._rows)
            if await self._resolve_if_required():
                continue
            if not sent:
                break
            await self._wait_for_requests()
            await self._wait_for_polls()
            if state.unresolved_requests:
                await self._resolve()
        state.end_retries()
        if not state.stopping.is_set() or isinstance(state.stop_reason, OutOfCredits):
            await self.session.journal.write(set_retry_obstacle(self._limit_reached(), *self._rows))

    def _limit_reached(self) -> str:
        """Return what limits the run: `no_credits` (the account's balance), `key_budget`, or `budget` (the run's)."""
        if isinstance(self.run_state.stop_reason, OutOfCredits):
            return "no_credits"
        return "key_budget" if self.run_state.is_limited_by_key else "budget"

    async def _mark_unaffordable_rows(self) -> None:
        """Mark pending rows as `over_budget` and stop the run, if only a limit on credits prevents sending the rows."""
        state = self.run_state
        no_credits = isinstance(state.stop_reason, OutOfCredits)
        if state.stopping.is_set() and not no_credits:
            return
        key_budget = self.session.key_budget if state.is_limited_by_key else None
        marked = await self.session.journal.write(mark_over_budget(self._limit_reached(), *self._rows))
        if marked and key_budget is not None:
            state.stop(key_budget_reached(marked, key_budget.credits, key_budget.length))
        elif marked and not no_credits:
            state.stop(run_budget_reached(marked, state.budget))
        elif state.rows_over_caps:
            state.stop(caps_reached(state.rows_over_caps))


def _initial_state(session: Session, started_at_s: float) -> tuple[RunState, RequestPrices]:
    """Return (the totals of the run so far, the prices learned from its charges), read from the journal.

    `started_at_s` is when this process began to work on the run, in monotonic seconds.
    """
    header, embedded = session.header, session.endpoint.embedded
    with open_read_only(session.out) as db:
        paid, held = credit_totals(db)
        run_state = RunState(
            counts=Counter(count_sendable_rows_by_status(db)),
            paid=paid,
            held=held,
            started_at_s=started_at_s,
            budget=header.options.budget,
            name_reliability=NameReliabilityTracker(initial_name_reliability(db, embedded=embedded)),
            uploads=UploadSelection(header.options.upload),
            unresolved_requests=count_submissions_in(db, State.UNCERTAIN),
        )
        learner = learner_from_journal(db, header, MAX_RECENT_CHARGES)
        has_charge = has_charge_since(db, session.first_at_service)
    retry_milli, capped = header.retry_per_image_milli, session.key_budget is not None or header.options.is_capped
    cautious = capped and not embedded
    return run_state, RequestPrices(learner, cautious=cautious, retry_milli=retry_milli, has_charge=has_charge)


@asynccontextmanager
async def open_engine(session: Session, rows: PlaceRange = ALL_ROWS, *, pay_again: int = 0) -> AsyncIterator[Engine]:
    """Yield an engine for a range of rows; during the `with` block, it polls for answers in the background.

    Args:
        session: The open run.
        rows: Places (from 0) of the first and the last row to send, in the send order.
        pay_again: Most credits for sending rows again whose earlier requests may have been charged; 0 sends none again.

    Raises:
        AccessDenied: the key is wrong; this is checked first, because it is free.
        SettingsError: no analysis service answers at the base URL; nothing was sent.
        Unreachable: the service cannot be reached, or does not tell the balance; nothing was sent.
    """
    started_at_s = session.clock.monotonic()
    balance = await require_balance(session.client)
    meta = {"balance_after": str(balance)}
    if session.header.balance_before is None:
        meta["balance_before"] = str(balance)
    await session.journal.write(put_balance_meta(meta))
    await session.journal.write(requeue_unsent_rows(*rows))
    run_state, prices = _initial_state(session, started_at_s)
    if (step_s := session.clock.restart_step_s) is not None and abs(step_s) >= STEP_S:
        run_state.add_note(
            f"The machine's clock was set by {step_s:+.0f} s since the last start of the run: times "
            "recorded before are not used."
        )
    engine = Engine(session, run_state, prices, rows, pay_again)
    await engine.reconciler.check_opening_balance(balance)
    polling = asyncio.create_task(engine.poll())
    try:
        async with engine.uploads.prober, persisted_limiter(session, engine.limiter):
            with reduce_gc():
                yield engine
    finally:
        run_state.interrupt()
        await asyncio.shield(engine.wait_until_idle())
        await engine.frames.close()
        polling.cancel()
        await asyncio.wait({polling})
        await _record_end(session, run_state)


async def _record_end(session: Session, run_state: RunState) -> None:
    """Store the run's total working time and notes in the journal, and the account's balance if it can be read."""
    meta = {"seconds": f"{session.header.seconds + session.clock.monotonic() - run_state.started_at_s:.3f}"}
    if run_state.notes:
        await session.journal.write(add_notes(run_state.notes))
    change = put_meta(meta)
    with suppress(Exception):  # (a final balance is useful, but no reason to fail)
        change = put_balance_meta({**meta, "balance_after": str(await session.client.credits())})
    await session.journal.write(change)
