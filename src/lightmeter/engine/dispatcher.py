"""From rows that wait to requests that leave: when pace, budget and risk allow it, and as large as pays.

What a request may cost is worked out right before it leaves, from all charges seen by then. A batch that a budget or
the cap on what is at risk does not hold is cut to what they hold; the rows that are cut off wait on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.engine.batching import Batch, BatchSizeInputs, auto_batch_size, group_into_batches, trim_batch
from lightmeter.engine.run_state import RunState
from lightmeter.engine.sender import Sender
from lightmeter.engine.session import Session
from lightmeter.errors import LightmeterError, OutcomeUnknown
from lightmeter.journal.answer_retries import not_retried, waiting_retries
from lightmeter.journal.commands import mark_over_budget
from lightmeter.journal.items import PendingRow, first_image, pending_rows
from lightmeter.journal.store import open_read_only
from lightmeter.money.request_prices import RequestPrices
from lightmeter.pricing.estimate import FrameRange
from lightmeter.pricing.rates import Rounding

__all__ = ["Dispatcher"]

LOST_SHARE: Final = 0.02
"""Of the budget, how much may be in doubt before the balance is asked about it: sending waits for that."""

EXPOSURE_GROWTH: Final = 4
"""Credits that may be set aside for each one that was charged: exposure grows with what was seen, from one image on."""

SURGE: Final = 10
"""A budget that holds what is set aside at so many times its price needs no slow start."""

ENDING_REQUESTS: Final = 8
"""With room for fewer requests than these left in a budget, they leave one by one."""

_LATER: Final = "Go on later: lightmeter resume DIR"
_IMAGE: Final = PendingRow(0, "", None, "image", 1)


class Dispatcher:
    """Sends the rows of a run that wait.

    Args:
        session: The open run.
        standing: Where the run stands.
        prices: What requests may cost.
        pace: When the next may leave.
        sender: Who sends.
        resolve: Finds out what became of lost requests.

    Attributes:
        rows_over_caps: Rows that no request may carry under these caps: marked as over the budget, with the reason.
    """

    def __init__(
        self,
        session: Session,
        standing: RunState,
        prices: RequestPrices,
        pace: AdaptiveLimiter,
        sender: Sender,
        *,
        resolve: Callable[[], Awaitable[int]],
    ) -> None:
        self._session = session
        self._standing = standing
        self._prices = prices
        self._pace = pace
        self._sender = sender
        self._resolve = resolve
        self._options = session.header.options
        self._bisection = sender.books.bisection
        self._names = sender.books.names
        self._sending: set[asyncio.Task[None]] = set()
        self.rows_over_caps = 0

    async def walk(self, first: int, last: int) -> int:
        """One walk over the rows first ≤ seq ≤ last that wait; returns how many requests left."""
        sent = await self._probe(first, last)
        with open_read_only(self._session.out) as db:
            rows = pending_rows(db, first, last)
            return sent + await self._send_all(
                group_into_batches(rows, self._size, self._prices.max_credits, self._bisection)
            )

    async def dispatch_retries(self, first: int, last: int) -> int:
        """One walk over the rows first ≤ seq ≤ last that wait to be asked about again; returns how many requests left.

        Each travels alone: its prompt names what was wrong with its own first answer.
        """
        with open_read_only(self._session.out) as db:
            rows = waiting_retries(db, first, last)
            return await self._send_all(Batch((row,), self._prices.max_credits([row])) for row in rows)

    async def _send_all(self, batches: Iterable[Batch]) -> int:
        sent = 0
        for batch in batches:
            fitting = await self._within_caps(batch)
            admitted = None if fitting is None else await self._admitted(fitting)
            if admitted is not None:
                self._launch(admitted)
                sent += 1
            elif self._standing.stopping.is_set():
                break
        return sent

    async def _probe(self, first: int, last: int) -> int:
        """While no price is known, one image leaves ahead of its turn, because a video would expose more."""
        if self._prices.price_known:
            return 0
        with open_read_only(self._session.out) as db:
            row = first_image(db, first, last)
        fitting = None if row is None else await self._within_caps(Batch((row,), self._prices.max_credits([row])))
        admitted = None if fitting is None else await self._admitted(fitting)
        if admitted is None:
            return 0
        before, unpriced_answers = await self._balance(), self._prices.unpriced_answers
        self._launch(admitted)
        await self.settled()
        if before is not None and self._prices.unpriced_answers > unpriced_answers and not self._prices.price_known:
            await self._learn_from_balance(admitted, before)
        return 1

    async def _learn_from_balance(self, probe: Batch, before: int) -> None:
        """What one image costs where answers name no charge: what the balance fell by while it was alone."""
        after = await self._balance()
        if after is not None and after < before:
            self._prices.observe([row.kind for row in probe.rows], FrameRange(1, 1), before - after)

    async def _balance(self) -> int | None:
        """The balance; None if it is not to be had now: it is worth knowing, never worth failing for."""
        try:
            return await self._session.client.credits()
        except LightmeterError:
            return None

    async def settled(self) -> None:
        """Returns when no request is in flight any more, whatever became of it."""
        while self._sending:
            await asyncio.wait(self._sending)

    def _size(self) -> int:
        """Images in the next request."""
        if self._options.upload != "never":  # each may have to be sent as a file, and files travel alone
            return 1
        if not self._prices.price_known:  # until a charge was seen, one image is all that is exposed
            return 1
        asked, cap = self._options.batch_size, self._options.max_at_risk
        size = min(self._names.max_images_per_request, self._auto_size() if asked == "auto" else asked)
        while cap is not None and size > 1 and self._prices.max_credits([_IMAGE] * size) > cap:
            size -= 1
        return size

    def _auto_size(self) -> int:
        if self._session.endpoint.embedded:  # it takes no more requests for being asked in batches
            return 1
        header = self._session.header
        milli = header.price_per_image_milli
        return auto_batch_size(
            BatchSizeInputs(
                price_per_image_milli=milli,
                rounding=self._prices.learner.likely_rounding if milli % 1000 else Rounding.IMAGE,
                requests_per_s=self._pace.requests_per_s,
                latency_s=self._pace.latency_s,
                at_once=self._options.max_concurrency,
                rows_left=self._standing.counts["pending"],
                max_at_risk=self._options.max_at_risk,
            )
        )

    def _launch(self, batch: Batch) -> None:
        """Let a batch through: from now on its price is reserved and at risk."""
        self._pace.on_admitted(self._session.clock.monotonic())
        self._standing.reserved += batch.hold
        self._standing.at_risk += batch.hold
        self._names.on_request_started(len(batch.rows))
        task = asyncio.create_task(self._sender.send(batch))
        self._sending.add(task)
        task.add_done_callback(partial(self._finished, batch))

    def _finished(self, batch: Batch, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._standing.at_risk -= batch.hold
        self._names.on_request_ended(len(batch.rows))
        self._standing.changed.set()  # only now there is room: whoever waits for it looks again
        if not task.cancelled() and (error := task.exception()) is not None:
            self._standing.crash = self._standing.crash or error
            self._standing.stop()

    async def _admitted(self, batch: Batch) -> Batch | None:
        """Wait until the batch may leave; None if it never may: the run stops, or a cap does not hold it."""
        standing, clock = self._standing, self._session.clock
        while not standing.stopping.is_set():
            batch = self._priced(batch)
            wait_s: float | None = self._pace.wait_s(clock.monotonic(), len(self._sending))
            if not standing.fits_budget(batch.hold) or standing.key_budget_exhausted:
                if not self._sending and not standing.polled:
                    fitting = None if standing.key_budget_exhausted else self._cut(batch, standing.free)
                    if fitting is None:
                        return None
                    batch = fitting
                    continue
                wait_s = None  # a charge below its hold may make room
            elif self._must_wait_for_others(batch):
                wait_s = None
            elif self._alone(batch) and standing.lost and not self._session.endpoint.embedded:
                await self._resolve()  # before the next one leaves: then what became of it can be told
                if standing.lost:
                    standing.stop(OutcomeUnknown("What became of a lost request cannot be told now.", hint=_LATER))
                continue
            elif not wait_s and self._risk_allows(batch):
                return batch
            full = len(self._sending) >= self._options.max_concurrency  # then time alone changes nothing
            await self._changed(None if full else wait_s)
        return None

    def _must_wait_for_others(self, batch: Batch) -> bool:
        """Whether it may leave only once something in flight has ended."""
        polled = self._standing.polled > 0
        if self._alone(batch) and (self._sending or (polled and not self._knows_price_of(batch))):
            return True
        return (bool(self._sending) or polled) and not self._exposure_allows(batch)

    def _priced(self, batch: Batch) -> Batch:
        """The same with what it may cost by all that is known now."""
        hold = self._prices.max_credits(batch.rows)
        return batch if hold == batch.hold else replace(batch, hold=hold)

    async def _changed(self, wait_s: float | None) -> None:
        """Wait until something has finished, for so long at most."""
        self._standing.changed.clear()
        if not wait_s:
            await self._standing.changed.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._standing.changed.wait()

    async def _within_caps(self, batch: Batch) -> Batch | None:
        """As much of a batch as may be at risk at once; a row that cannot be held for at all is marked."""
        if self._standing.budget is not None and any(row.frames_high is None for row in batch.rows):
            await self._mark(batch.rows, "no_bound")
            return None
        fitting = self._cut(batch, self._options.max_at_risk)
        if fitting is None:
            await self._mark(batch.rows[:1], "at_risk")
        return fitting

    async def _mark(self, rows: Sequence[PendingRow], reason: str) -> None:
        if rows[0].retry is not None:
            await self._session.journal.write(not_retried(reason, rows[0].seq, rows[0].seq))
            return
        for row in rows:
            await self._session.journal.write(mark_over_budget(reason, row.seq, row.seq))
        self._standing.moved("pending", "over_budget", len(rows))
        self.rows_over_caps += len(rows)

    def _cut(self, batch: Batch, most: int | None) -> Batch | None:
        return batch if most is None else trim_batch(batch, most, self._prices.max_credits)

    def _alone(self, batch: Batch) -> bool:
        """Whether this one leaves with no other in flight: then what becomes of it can always be told.

        So go the first ones, as long as nobody knows the price, the last that the budget holds, and the next one after
        so much was lost that the budget would not be used up: the fewer are told apart at once, the more can be.
        """
        if self._session.endpoint.embedded:  # what is lost there is asked for again, and its prices are our own
            return self._options.careful
        free = self._standing.free
        ending = free is not None and free < batch.hold * min(ENDING_REQUESTS, self._options.max_concurrency)
        much_lost = (
            self._standing.lost > 0 and self._standing.lost_credits >= (self._standing.budget or inf) * LOST_SHARE
        )
        return self._options.careful or ending or much_lost or not self._knows_price_of(batch)

    def _knows_price_of(self, batch: Batch) -> bool:
        """Whether a charge of this sort of request was seen."""
        return self._prices.price_known if batch.rows[0].retry is None else self._prices.retry_price_known

    def _exposure_allows(self, batch: Batch) -> bool:
        """Whether as much may be set aside at once, by what was charged so far: a price table is no promise."""
        free, exposure = self._standing.free, self._standing.exposure + batch.hold
        if free is None or self._prices.trusted:
            return True
        return exposure <= EXPOSURE_GROWTH * self._standing.paid or free >= SURGE * exposure

    def _risk_allows(self, batch: Batch) -> bool:
        cap = self._options.max_at_risk
        return cap is None or self._standing.at_risk + batch.hold <= cap
