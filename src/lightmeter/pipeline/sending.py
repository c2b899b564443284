"""One request, from the decision to send it to the credit it cost: the only place that spends.

The order is the whole point: what could be paid for is on disk before the first byte leaves, and what came back is on
disk before anything looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightmeter.client.pace import Pace, quota_of
from lightmeter.client.retry import Judgement, Verdict
from lightmeter.client.transport import RawAnswer
from lightmeter.client.uploads import encode_files
from lightmeter.errors import (
    AccessDenied,
    BudgetReached,
    MediaTooLarge,
    OutcomeUnknown,
    OutOfCredits,
    Unreachable,
    UsageError,
)
from lightmeter.journal.changes import (
    Received,
    Refusal,
    acknowledge,
    fail_row,
    hold_and_send,
    lose,
    receive,
    settle,
    take_back,
    void,
)
from lightmeter.journal.items import Pending
from lightmeter.journal.state import Event
from lightmeter.models.request import AnalyzeRequest
from lightmeter.pipeline.batching import Batch
from lightmeter.pipeline.matching import outcome_of
from lightmeter.pipeline.session import Session
from lightmeter.pipeline.standing import Standing

__all__ = ["Acked", "Sender", "Sent", "sent_name"]

UNREACHABLE_TRIES = 5
UNREACHABLE_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Sent:
    """A submission that is on its way: its id, the credits held, and its rows as (seq, name sent)."""

    submission_id: int
    hold: int
    rows: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Acked:
    """A submission whose answer must be polled for."""

    sent: Sent
    request_id: str
    acked_at: float


class Sender:
    """Sends batches and writes down what became of them.

    Args:
        session: The open run.
        standing: Where the run stands.
        pace: When the next request may leave.
        on_acked: Takes over what must be polled for.
    """

    def __init__(self, session: Session, standing: Standing, pace: Pace, on_acked: Callable[[Acked], None]) -> None:
        self._session = session
        self._standing = standing
        self._pace = pace
        self._on_acked = on_acked
        self._unreached = 0
        self.alone: set[int] = set()
        """Rows of refused batches: they are sent by themselves, so that one bad row does not fail its neighbours."""

    async def send(self, batch: Batch) -> None:
        """Send one batch that the engine has reserved credits for, whatever comes of it."""
        try:
            ready = await self._hold(batch)
        finally:
            self._standing.reserved -= batch.hold
        if ready is not None:
            await self.post(*ready)

    async def _hold(self, batch: Batch) -> tuple[Sent, AnalyzeRequest] | None:
        """Build the request and set its price aside; None if it cannot be sent."""
        request = await self._request(batch.rows)
        if request is None:
            return None
        rows = tuple((row.seq, sent_name(row.url, row.path)) for row in batch.rows)
        budget = self._standing.budget
        try:
            change = hold_and_send([seq for seq, _ in rows], batch.hold, budget, self._session.clock.now())
            submission_id = await self._session.journal.write(change)
        except BudgetReached:  # the engine asked first; the journal has the last word
            return None
        self._standing.held += batch.hold
        return Sent(submission_id, batch.hold, rows), request

    async def resend(self, sent: Sent, places: Sequence[tuple[str, str | None]]) -> None:
        """POST again under the same idempotency key what was already written down as sent; `places` are (url, path)."""
        request = await self._build(places)
        await self.post(sent, request)

    async def _request(self, rows: Sequence[Pending]) -> AnalyzeRequest | None:
        try:
            return await self._build([(row.url, row.path) for row in rows])
        except (MediaTooLarge, UsageError) as error:  # a local file, always alone in its batch
            await self._session.journal.write(fail_row(rows[0].seq, "unreadable_file", str(error)))
            self._standing.moved("pending", "failed", 1)
            return None

    async def _build(self, places: Sequence[tuple[str, str | None]]) -> AnalyzeRequest:
        options = self._session.header.options
        files = [path for _, path in places if path is not None]
        if not files:
            return options.request(urls=[url for url, _ in places])
        encoded, names = await encode_files(files)
        return options.request(files=encoded, names=names)

    async def post(self, sent: Sent, request: AnalyzeRequest) -> None:
        """The POST itself: never retried, never cancelled half-way."""
        standing, clock = self._standing, self._session.clock
        standing.requests += 1
        standing.in_flight += 1
        ticket = self._pace.on_sent(clock.monotonic())
        began = clock.monotonic()
        key = f"{self._session.header.run_id}-{sent.submission_id}"
        try:
            raw, judgement = await self._session.client.submit(request, idempotency_key=key)
        except Unreachable as error:
            self._pace.on_lost(ticket)
            await self._unreachable(sent, error)
        except OutcomeUnknown as error:
            self._pace.on_lost(ticket)
            await self._lost(sent, str(error))
        else:
            self._unreached = 0
            now = clock.monotonic()
            if judgement.verdict is Verdict.THROTTLED:
                self._pace.on_throttled(now, judgement.retry_after_s, ticket)
            else:
                self._pace.on_answer(now, now - began, ticket)
            if (quota := quota_of(raw.headers)) is not None and judgement.retry_after_s is None:
                self._pace.on_quota(now, quota)
            await self._answered(sent, raw, judgement)
        finally:
            standing.in_flight -= 1
            standing.changed.set()

    async def _answered(self, sent: Sent, raw: RawAnswer, judgement: Judgement) -> None:
        now = self._session.clock.now()
        received = Received(raw.body, raw.status, now)
        verdict, error = judgement.verdict, judgement.error or f"HTTP {raw.status}"
        if verdict in {Verdict.ANSWERED, Verdict.FAILED}:
            await self.keep(sent, received, Event.ANSWER)
        elif verdict in {Verdict.ACKNOWLEDGED, Verdict.PROCESSING} and judgement.request_id:
            await self._session.journal.write(acknowledge(sent.submission_id, judgement.request_id, now))
            self._on_acked(Acked(sent, judgement.request_id, now))
        elif verdict is Verdict.THROTTLED:
            await self._take_back(sent, Event.THROTTLE, error)
        elif verdict is Verdict.DENIED:
            await self._refused(sent, Refusal("access_denied", error, received, rows_wait=True))
            self._standing.stop(AccessDenied(error, hint="Set LIGHTMETER_API_KEY to a key of your account."))
        elif verdict is Verdict.NO_CREDITS:
            await self._refused(sent, Refusal("no_credits", error, received, rows_wait=True))
            self._standing.stop(OutOfCredits(error, hint="Add credits, then: lightmeter resume DIR"))
        elif verdict in {Verdict.REFUSED, Verdict.NOT_FOUND}:
            several = len(sent.rows) > 1
            self.alone.update(seq for seq, _ in sent.rows if several)
            await self._refused(sent, Refusal("refused", error, received, rows_wait=several))
        else:
            await self._lost(sent, error)

    async def keep(self, sent: Sent, received: Received, event: Event) -> None:
        """An answer is here: keep its bytes, then read its money and rows."""
        await self._session.journal.write(receive(sent.submission_id, received, event))
        await self.settle(sent, received.raw)

    async def settle(self, sent: Sent, raw: bytes) -> None:
        """Read an answer that is on disk, and write down what it cost and where each row's asset is."""
        outcome = outcome_of(raw, sent.rows, sent.hold)
        await self._session.journal.write(settle(sent.submission_id, outcome, self._session.clock.now()))
        self._standing.held -= sent.hold
        self._standing.paid += outcome.paid
        failed = sum(placed.error is not None for placed in outcome.rows)
        self._standing.moved("pending", "failed", failed)
        self._standing.moved("pending", "ok", len(outcome.rows) - failed)

    async def _refused(self, sent: Sent, refusal: Refusal) -> None:
        await self._session.journal.write(void(sent.submission_id, refusal, self._session.clock.now()))
        self._standing.held -= sent.hold
        if not refusal.rows_wait:
            self._standing.moved("pending", "failed", len(sent.rows))

    async def _take_back(self, sent: Sent, event: Event, why: str) -> None:
        await self._session.journal.write(take_back(sent.submission_id, event, why, self._session.clock.now()))
        self._standing.held -= sent.hold

    async def _lost(self, sent: Sent, why: str) -> None:
        await self._session.journal.write(lose(sent.submission_id, why, self._session.clock.now()))
        self._standing.moved("pending", "in_doubt", len(sent.rows))

    async def _unreachable(self, sent: Sent, error: Unreachable) -> None:
        await self._take_back(sent, Event.UNREACHED, str(error))
        self._unreached += 1
        if self._unreached >= UNREACHABLE_TRIES:
            self._standing.stop(error)
        else:
            pause = UNREACHABLE_PAUSE_S * 2**self._unreached
            self._pace.hold(self._session.clock.monotonic() + pause)


def sent_name(url: str, path: str | None) -> str:
    """What a service is expected to call this asset: its URL, or its file's name."""
    return url if path is None else Path(path).name
