"""Send pending rows as requests once the rate limit, the budget and the cap on credits at risk allow it.

The highest price of a request is computed right before the request is sent, from all charges known by then. A batch
that is too large for the budget or the cap is trimmed; the rows cut off stay pending. The credits of a request are at
risk until the service answers: a request that gets no answer may have been charged, and its results are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.engine.batching import Batch, NameReliability, auto_batch_size, group_into_batches, trim_batch
from lightmeter.engine.run_state import RunState
from lightmeter.engine.sender import Sender
from lightmeter.errors import LightmeterError
from lightmeter.journal.commands.submissions import mark_row_over_budget, set_row_retry_obstacle
from lightmeter.journal.queries.answer_retries import waiting_retries
from lightmeter.journal.queries.pending_rows import PendingRow, first_single_picture_row, pending_rows
from lightmeter.journal.store import open_read_only
from lightmeter.money.request_prices import RequestPrices
from lightmeter.pricing.estimate import FrameRange
from lightmeter.pricing.rates import Rounding
from lightmeter.run_session.session import Session

MAX_UNRESOLVED_SHARE: Final = 0.02
"""If requests without an answer may have cost this fraction of the budget, the run stops sending for the moment.

It sends more rows once it has found out what these requests cost.
"""

EXPOSURE_GROWTH: Final = 4
"""Most credits that may be reserved per credit charged so far, while prices are uncertain.

So answers show a wrong price early.
"""

AMPLE_BUDGET_FACTOR: Final = 10
"""If the rest of the budget is at least this many times the reserved credits, `EXPOSURE_GROWTH` does not apply.

An unexpected price does no harm then.
"""

LAST_REQUESTS: Final = 8
"""If the rest of the budget pays for fewer requests than this, the last requests are sent one at a time."""


_IMAGE: Final = PendingRow(0, "", None, "image", 1)


class Dispatcher:
    """Sends the pending rows of a run to the service, within rate limit, budget and the cap on credits at risk.

    Credits at risk are those reserved for requests that were sent and have no answer of any kind yet: a power cut could
    lose the answers. The option `max_at_risk` is the cap.
    """

    def __init__(
        self, session: Session, run_state: RunState, prices: RequestPrices, limiter: AdaptiveLimiter, sender: Sender
    ) -> None:
        self._session = session
        self._run_state = run_state
        self._prices = prices
        self._limiter = limiter
        self._sender = sender
        self._options = session.header.options
        self._sending: set[asyncio.Task[None]] = set()
        self._unsent_place: int | None = None
        self._excluded: set[int] = set()  # rows of the present batch that are too expensive or have no highest price

    async def dispatch_rows(self, first: int, last: int) -> int:
        """Send the pending rows in places `first` to `last` of the send order; return the number of requests sent.

        Places count from 0; both are included. Return early when the run stops, or when the caller must first find out
        what requests without an answer cost (`RunState.must_resolve`). If the option `sample` is not `order`, also
        return early when the budget is too small for the next row: to send a cheaper row instead would make the sample
        depend on prices.
        """
        sent = await self._send_first_image(first, last)
        sent += await self._send_pending(first, last)
        if not sent and self._unsent_place is not None:  # rows before that place may wait in a batch that is not full
            sent = await self._send_pending(first, self._unsent_place - 1)
        return sent

    async def _send_pending(self, first: int, last: int) -> int:
        with open_read_only(self._session.out) as db:
            rows = pending_rows(db, first, last)
            batches = group_into_batches(rows, self._batch_size, self._prices.max_credits, self._run_state.bisection)
            return await self._send_all(batches)

    async def dispatch_retries(self, first: int, last: int) -> int:
        """Repeat the user's question (`--ask`) for rows whose answer is not valid; return the number of requests sent.

        Only rows in places `first` to `last` of the send order count; places count from 0, and both are included. Each
        row has a request of its own, because the prompt names the error in the row's first answer. Return early when
        the run stops, or when the caller must first find out what requests without an answer cost
        (`RunState.must_resolve`).
        """
        with open_read_only(self._session.out) as db:
            rows = waiting_retries(db, first, last)
            return await self._send_all(Batch((row,), self._prices.max_credits([row])) for row in rows)

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        while self._sending:
            done, _ = await asyncio.wait(self._sending)
            self._sending -= done

    async def _send_all(self, batches: Iterable[Batch]) -> int:
        sent = 0
        self._unsent_place = None
        for batch in batches:
            if self._run_state.stopping.is_set() or self._run_state.must_resolve:
                break
            self._excluded.clear()
            admitted = await self._admit(batch)
            if admitted is not None:
                self._launch(admitted)
                sent += 1
            done = self._excluded.union(row.seq for row in (admitted.rows if admitted else ()))
            left = [row.place for row in batch.rows if row.seq not in done]
            if self._options.sample != "order" and left:
                self._unsent_place = left[0]
                break
        return sent

    def _launch(self, batch: Batch) -> None:
        """Send a batch in a background task; the caller has checked rate limit, budget and cap (`max_at_risk`)."""
        self._limiter.on_admitted(self._session.clock.monotonic())
        self._run_state.admit(batch)
        self._sending.add(asyncio.create_task(self._send(batch)))

    async def _send(self, batch: Batch) -> None:
        try:
            await self._sender.send(batch)
        except Exception as error:  # noqa: BLE001 (whatever it is: the engine raises it once all have ended)
            self._run_state.fail(error)
        finally:
            if (task := asyncio.current_task()) is not None:
                self._sending.discard(task)
            self._run_state.end_batch(batch)

    async def _send_first_image(self, first: int, last: int) -> int:
        """If the price or the names in answers must be learned, send one image; return the number of requests sent.

        The image is the first pending one in places `first` to `last` of the send order, both included. After it was
        sent, wait until no request is in flight; if batches are wanted, also for an answer by polling. If its answer
        names no charge, the change of the balance shows the charge, but only if nobody else spends from the account.
        """
        names_unknown = self._run_state.name_reliability.reliability is NameReliability.UNKNOWN
        must_learn_names = names_unknown and self._wanted_batch_size() > 1
        if not (self._prices.must_learn_price or must_learn_names):
            return 0
        with open_read_only(self._session.out) as db:
            row = first_single_picture_row(db, first, last)
        image = None if row is None else await self._admit(Batch((row,), self._prices.max_credits([row])))
        if image is None:
            return 0
        unpriced_answers = self._prices.unpriced_answers
        before = await self._balance() if self._options.sole_spender else None
        self._launch(image)
        await self.wait_until_idle()
        while must_learn_names and self._run_state.polls_outstanding and not self._run_state.stopping.is_set():
            await self._run_state.wait_for_change()
        if before is not None and self._prices.unpriced_answers > unpriced_answers and self._prices.must_learn_price:
            after = await self._balance()
            if after is not None and after < before:
                self._prices.observe([row.kind for row in image.rows], FrameRange(1, 1), before - after)
        return 1

    async def _balance(self) -> int | None:
        """Return the balance of the account in credits; None if it cannot be read now."""
        try:
            return await self._session.client.credits()
        except LightmeterError:
            return None

    def _batch_size(self) -> int:
        """Return the most images that the next request may have."""
        if self._prices.must_learn_price:  # until a charge is known, put only one image at risk
            return 1
        cap = self._options.max_at_risk
        size = min(self._run_state.name_reliability.max_images_per_request, self._wanted_batch_size())
        while cap is not None and size > 1 and self._prices.max_credits([_IMAGE] * size) > cap:
            size -= 1
        return size

    def _wanted_batch_size(self) -> int:
        """Return the number of images in a request that the user wants, or that makes the run quicker or cheaper."""
        if self._options.upload != "never":  # any image may have to be sent as a file, and a file has its own request
            return 1
        if self._options.batch_size != "auto":
            return self._options.batch_size
        if self._session.endpoint.embedded:  # batches do not make it faster
            return 1
        milli = self._session.header.price_per_image_milli
        return auto_batch_size(
            milli,
            self._prices.learner.likely_rounding if milli % 1000 else Rounding.IMAGE,
            requests_per_s=self._limiter.requests_per_s,
            unlimited_per_s=self._options.max_concurrency / max(0.001, self._limiter.latency_s),
            rows_left=self._run_state.counts["pending"],
            max_at_risk=self._options.max_at_risk,
        )

    async def _admit(self, batch: Batch) -> Batch | None:
        """Wait until rate limit, budget and `max_at_risk` allow a batch to be sent; return it, trimmed to both limits.

        `max_at_risk` is the cap on the credits at risk of all requests, including the batch. Return None if the run
        stops, if no row may be sent, if the first such row alone exceeds the budget, or if the engine must first find
        out what unanswered requests cost.
        """
        state = self._run_state
        while not state.stopping.is_set():
            within_cap = await self._trim_to_risk_cap(batch.rows)
            if within_cap is None:
                return None
            batch = within_cap
            await self._read_key_budget(batch.hold)
            wait_s = self._limiter.wait_s(self._session.clock.monotonic(), len(self._sending))
            if state.stopping.is_set():
                return None
            if state.credits_left is not None and batch.hold > state.credits_left:
                if self._requests_outstanding():  # a charge below its hold may make room
                    await state.wait_for_change()
                    continue
                trimmed = trim_batch(batch, state.credits_left, self._prices.max_credits)
                if trimmed is None:
                    return None
                batch = trimmed
            elif self._must_wait_for_others(batch):
                await state.wait_for_change()
            elif state.unresolved_requests and not self._session.endpoint.embedded and self._must_leave_alone(batch):
                state.set_must_resolve(required=True)  # a balance proves less about several lost requests
                return None
            elif wait_s <= 0 and state.at_risk + batch.hold <= (self._options.max_at_risk or inf):
                return batch
            else:
                full = len(self._sending) >= self._options.max_concurrency  # only the end of a request makes room
                await state.wait_for_change(None if full or wait_s <= 0 else wait_s)
        return None

    async def _read_key_budget(self, wanted: int) -> None:
        """Read how many credits the budget of the API key leaves; do nothing if it has none.

        `wanted` is the number of credits to reserve next.
        """
        key_budget, reserved = self._session.key_budget, self._run_state.reserved
        if key_budget is not None:
            self._run_state.set_key_budget_room(max(0, await key_budget.room(wanted + reserved) - reserved))

    def _requests_outstanding(self) -> bool:
        return bool(self._sending) or self._run_state.polls_outstanding > 0

    def _must_wait_for_others(self, batch: Batch) -> bool:
        """Whether a batch may be sent only after requests in flight have ended.

        There are two reasons: the batch must be the only request in flight (`_must_leave_alone`), or prices are too
        uncertain to reserve more credits (`_exposure_allows`).
        """
        if not self._requests_outstanding():
            self._run_state.set_underreserved(underreserved=False)
            return False
        polled = self._run_state.polls_outstanding > 0
        if self._must_leave_alone(batch) and (self._sending or (polled and self._must_learn_price_of(batch))):
            return True
        return not self._exposure_allows(batch)

    async def _trim_to_risk_cap(self, rows: Sequence[PendingRow]) -> Batch | None:
        """Return a batch of as many first rows as `max_at_risk` credits pay for; None if no row may be sent.

        The price is computed from all charges known so far. Rows that may not be sent at all are left out and marked as
        over budget. These are rows that alone cost more than the cap. If the run or the key has a budget, these are
        also rows without a highest price, such as a video of unknown length.
        """
        bounded, has_budget = [], self._run_state.budget is not None or self._session.key_budget is not None
        for row in rows:
            if has_budget and row.frames_high is None:
                await self._mark_over_caps(row, "no_bound")
            else:
                bounded.append(row)
        for first, row in enumerate(bounded):
            batch = Batch(tuple(bounded[first:]), self._prices.max_credits(bounded[first:]))
            trimmed = trim_batch(batch, self._options.max_at_risk, self._prices.max_credits)
            if trimmed is not None:
                return trimmed
            await self._mark_over_caps(row, "at_risk")
        return None

    async def _mark_over_caps(self, row: PendingRow, reason: str) -> None:
        self._excluded.add(row.seq)
        if row.retry is not None:
            await self._session.journal.write(set_row_retry_obstacle(reason, row.seq))
            return
        await self._session.journal.write(mark_row_over_budget(reason, row.seq))
        self._run_state.mark_over_caps(reason, 1)

    def _must_leave_alone(self, batch: Batch) -> bool:
        """Whether a batch must be the only request in flight.

        If the answer to such a batch is lost, the balance of the account proves whether the batch was charged. With the
        option `careful`, the result is always true. Otherwise it is false for the embedded service. For another
        service, it is true if the price of the batch must be learned, if the budget pays for few more requests, or if
        requests without an answer may have cost `MAX_UNRESOLVED_SHARE` of the budget.
        """
        state = self._run_state
        if self._session.endpoint.embedded:  # it honors idempotency keys, and its prices are known
            return self._options.careful
        free = state.credits_left
        ending = free is not None and free < batch.hold * min(LAST_REQUESTS, self._options.max_concurrency)
        threshold = (state.budget or inf) * MAX_UNRESOLVED_SHARE
        much_lost = state.unresolved_requests > 0 and state.unresolved_credits >= threshold
        return self._options.careful or ending or much_lost or self._must_learn_price_of(batch)

    def _must_learn_price_of(self, batch: Batch) -> bool:
        """Whether the price of a batch is unknown and must be learned.

        A request that repeats a question (`--ask`) has another price than other requests, which is learned separately.
        """
        is_retry = batch.rows[0].retry is not None
        return self._prices.must_learn_retry_price if is_retry else self._prices.must_learn_price

    def _exposure_allows(self, batch: Batch) -> bool:
        """Whether a batch may be sent now, in view of the credits that are reserved while prices are uncertain.

        If neither the run nor the key has a budget, or if prices are certain, the result is true. Otherwise the
        reserved credits, including those of the batch, must be few compared with the credits paid or with the rest of
        the budget. So, if prices are higher than planned, answers show it before the budget is spent. As much as is
        reserved for requests in flight must stay free, so that the budget holds if prices double. If a request has cost
        more than was reserved for it, all requests in flight must end first.
        """
        state = self._run_state
        free, exposure = state.credits_left, state.exposure + batch.hold
        if free is None or not self._prices.cautious:
            return True
        if state.underreserved:
            return False
        in_flight = state.at_risk + state.polled_credits + batch.hold
        few = exposure <= EXPOSURE_GROWTH * state.paid and in_flight <= free - batch.hold
        return few or free >= AMPLE_BUDGET_FACTOR * exposure
