"""One request, from the decision to send it to its answer: the only place that spends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lightmeter.client.classify import Classification, ResponseVerdict, classify_submission
from lightmeter.client.file_upload import encode_files
from lightmeter.client.rate_limit import AdaptiveLimiter, parse_quota
from lightmeter.client.request_body import RequestBodyBuilder
from lightmeter.client.transport import RawAnswer
from lightmeter.engine.accounting import Accounting, AcknowledgedRequest, InFlightRequest
from lightmeter.engine.batching import Batch
from lightmeter.engine.run_state import RunState
from lightmeter.engine.session import Session
from lightmeter.errors import (
    AccessDenied,
    FetchError,
    MediaError,
    OutcomeUnknown,
    OutOfCredits,
    Unreachable,
    UsageError,
)
from lightmeter.facts.lenient_json import parse_object_strict
from lightmeter.journal.items import AnswerRetry, PendingRow
from lightmeter.journal.outcome import ReceivedAnswer, Refusal
from lightmeter.journal.state import Event

__all__ = ["Sender"]

UNREACHABLE_TRIES = 5
UNREACHABLE_PAUSE_S = 0.5


class Sender:
    """Sends batches and writes down what became of them.

    Args:
        session: The open run.
        standing: Where the run stands.
        books: Where its money is written down.
        pace: When the next request may leave.
        on_acked: Takes over what must be polled for.
    """

    def __init__(
        self,
        session: Session,
        standing: RunState,
        books: Accounting,
        pace: AdaptiveLimiter,
        on_acked: Callable[[AcknowledgedRequest], None],
    ) -> None:
        self._session = session
        self._standing = standing
        self.books = books
        self._pace = pace
        self._on_acked = on_acked
        self._unreached = 0
        self._bodies = RequestBodyBuilder(session.header.options.request())

    async def send(self, batch: Batch) -> None:
        """Send one batch that the engine has reserved credits for, whatever comes of it."""
        try:
            ready = await self._hold(batch)
        finally:
            self._standing.reserved -= batch.hold
        if ready is not None:
            await self.post(*ready)

    async def _hold(self, batch: Batch) -> tuple[InFlightRequest, bytes] | None:
        """Build the request and set its price aside; None if it cannot be sent."""
        request = await self._request(batch.rows)
        sent = None if request is None else await self.books.hold(batch.rows, batch.hold)
        return None if sent is None or request is None else (sent, request)

    async def resend(
        self, sent: InFlightRequest, places: Sequence[tuple[str, str | None]], retry: AnswerRetry | None = None
    ) -> None:
        """POST a lost request again under its idempotency key, where that is honoured; `places` are (url, path)."""
        request = await self._build(places, retry)
        await self.books.ask_again(sent)
        await self.post(sent, request)

    async def _request(self, rows: Sequence[PendingRow]) -> bytes | None:
        try:
            return await self._build([(row.url, row.path) for row in rows], rows[0].retry)
        except (FetchError, MediaError, UsageError) as error:  # a file, always alone in its batch
            reason = "unreadable_file" if rows[0].path is not None else "not_uploaded"
            await self.books.fail(rows[0], reason, str(error))
            return None

    async def _build(self, places: Sequence[tuple[str, str | None]], retry: AnswerRetry | None) -> bytes:
        bodies = self._bodies
        if retry is not None:
            bodies = RequestBodyBuilder(self._session.header.options.retry_request(retry.error, retry.backends))
        files = [path for _, path in places if path is not None]
        url = places[0][0]
        if not files and len(places) == 1 and self.books.uploads.wants(url):
            content, name = await self.books.uploads.fetch_content(url)
            return bodies.for_files([content], [name])
        if not files:
            return bodies.for_urls([url for url, _ in places])
        encoded, names = await encode_files(files)
        return bodies.for_files(encoded, names)

    async def post(self, sent: InFlightRequest, request: bytes) -> None:
        """The POST itself: never retried, never cancelled half-way."""
        standing, clock = self._standing, self._session.clock
        standing.requests += 1
        standing.in_flight += 1
        ticket = self._pace.on_sent(clock.monotonic())
        began = clock.monotonic()
        key = self._session.header.idempotency_key(sent.submission_id)
        try:
            raw = await self._session.client.send_request(request, idempotency_key=key)
        except Unreachable as error:
            self._pace.on_lost(ticket)
            await self._unreachable(sent, error)
        except OutcomeUnknown as error:
            self._pace.on_lost(ticket)
            cut = ReceivedAnswer(error.body, error.http_status or 0, self._session.clock.now()) if error.body else None
            await self.books.lose(sent, str(error), cut)
        else:
            self._unreached = 0
            now = clock.monotonic()
            judgement = await self._judged(sent, raw)
            if judgement.verdict is ResponseVerdict.THROTTLED:
                self._pace.on_throttled(now, judgement.retry_after_s, ticket)
            else:
                self._pace.on_answer(now, now - began, ticket)
            if (quota := parse_quota(raw.headers)) is not None and judgement.retry_after_s is None:
                self._pace.on_quota(now, quota)
            await self._answered(sent, raw, judgement)
        finally:
            standing.in_flight -= 1
            standing.changed.set()

    async def _judged(self, sent: InFlightRequest, raw: RawAnswer) -> Classification:
        """What an answer means; bytes that are not strictly JSON are on disk before anybody reads them."""
        data = parse_object_strict(raw.body)
        if data is None:
            await self.books.store_raw_answer(sent, ReceivedAnswer(raw.body, raw.status, self._session.clock.now()))
        return classify_submission(raw, now=self._session.clock.now(), data=data)

    async def _answered(self, sent: InFlightRequest, raw: RawAnswer, judgement: Classification) -> None:
        received = ReceivedAnswer(raw.body, raw.status, self._session.clock.now())
        verdict, error = judgement.verdict, judgement.error or f"HTTP {raw.status}"
        if verdict in {ResponseVerdict.ANSWERED, ResponseVerdict.FAILED}:
            await self.books.keep(sent, received, Event.ANSWER, judgement)
        elif verdict in {ResponseVerdict.ACKNOWLEDGED, ResponseVerdict.PROCESSING} and judgement.request_id:
            self._on_acked(await self.books.acknowledge(sent, judgement.request_id))
        elif verdict is ResponseVerdict.THROTTLED:
            await self.books.revert_to_planned(sent, Event.THROTTLE, error)
        elif verdict is ResponseVerdict.DENIED:
            await self.books.refuse(sent, Refusal("access_denied", error, received, rows_retryable=True))
            self._standing.stop(AccessDenied(error, hint="Set LIGHTMETER_API_KEY to a key of your account."))
        elif verdict is ResponseVerdict.NO_CREDITS:
            await self.books.refuse(sent, Refusal("no_credits", error, received, rows_retryable=True))
            self._standing.stop(OutOfCredits(error, hint="Add credits, then: lightmeter resume DIR"))
        elif verdict in {ResponseVerdict.REFUSED, ResponseVerdict.NOT_FOUND}:
            waits = self.books.bisection.refused([seq for seq, _ in sent.rows])
            waits = waits or (not sent.retry and self.books.uploads.instead(sent.rows[0][1], error))
            await self.books.refuse(sent, Refusal("refused", error, received, rows_retryable=waits))
        else:
            await self.books.lose(sent, error, received)

    async def _unreachable(self, sent: InFlightRequest, error: Unreachable) -> None:
        await self.books.revert_to_planned(sent, Event.UNREACHED, str(error))
        self._unreached += 1
        if self._unreached >= UNREACHABLE_TRIES:
            self._standing.stop(error)
        else:
            pause = UNREACHABLE_PAUSE_S * 2**self._unreached
            self._pace.hold(self._session.clock.monotonic() + pause)
