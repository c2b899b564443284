"""Send one request and record its outcome. No other module sends requests that cost credits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from lightmeter.client.classify import Classification, ResponseVerdict, classify_submission
from lightmeter.client.file_encoding import encode_files
from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.client.request_body import RequestBodyBuilder
from lightmeter.engine.accounting import Accounting
from lightmeter.engine.batching import Batch
from lightmeter.engine.frame_extraction import FrameExtractor
from lightmeter.engine.in_flight import InFlightRequest, sent_name
from lightmeter.engine.limiter_state import learn_from_answer
from lightmeter.engine.request_telemetry import request_span
from lightmeter.engine.run_state import RunState
from lightmeter.engine.url_uploads import UploadFetcher
from lightmeter.errors import (
    AccessDenied,
    FetchError,
    MediaError,
    OutcomeUnknown,
    OutOfCredits,
    Unreachable,
    UsageError,
)
from lightmeter.journal.frame_rows import frame_of
from lightmeter.journal.outcome import NOT_UPLOADED, ReceivedAnswer, Refusal
from lightmeter.journal.queries.pending_rows import AnswerRetry
from lightmeter.journal.submission_states import Event
from lightmeter.manifest.tar_members import local_file
from lightmeter.run_session.session import Session

MAX_UNREACHABLE: Final = 5
"""The run stops once this many delivery attempts in a row have failed: after 15 s of pauses between them.

Requests that were sent before the end of the same pause count as one attempt.
"""

UNREACHABLE_PAUSE_S: Final = 0.5
"""After n delivery attempts in a row that failed, the pause is 2**n times this number of seconds."""


class Sender:
    """Sends batches of rows, records their outcomes, and adjusts the rate limiter to the answers."""

    def __init__(
        self,
        session: Session,
        run_state: RunState,
        accounting: Accounting,
        limiter: AdaptiveLimiter,
        uploads: UploadFetcher,
        frames: FrameExtractor,
    ) -> None:
        self._session = session
        self._run_state = run_state
        self._accounting = accounting
        self._limiter = limiter
        self._uploads = uploads
        self._frames = frames
        self._unreachable_in_a_row = 0
        self._pause_end_s = float("-inf")
        self._bodies = RequestBodyBuilder(session.header.options.request())

    async def send(self, batch: Batch) -> None:
        """Send a batch as one request, and record the outcome; `RunState.admit` has reserved the credits before."""
        first, request = batch.rows[0], None
        try:
            body = await self._build([(row.seq, row.url, row.path) for row in batch.rows], first.retry)
        except (FetchError, MediaError, UsageError) as error:  # a file, which has a request of its own
            reason = NOT_UPLOADED if isinstance(error, FetchError) else "unreadable_file"
            await self._accounting.fail_row(first, reason, str(error))
        else:
            request = await self._accounting.hold(batch.rows, batch.hold)
        finally:
            self._run_state.end_reservation(batch)
        if request is not None:
            await self._post(request, body)

    async def resend(
        self, request: InFlightRequest, sources: Sequence[tuple[int, str, str | None]], retry: AnswerRetry | None = None
    ) -> None:
        """Send a lost request again under its idempotency key, to a service that charges each key once.

        Args:
            request: The lost request.
            sources: (row number, url, path) of each row of the request; the path is None unless the row is a local
                file.
            retry: For a request of one row that asks the user's question (`--ask`) again: what is wrong with the first
                answer. None for all other requests.

        Raises:
            FetchError: a URL whose content or frames are sent cannot be downloaded.
            MediaError: the content is larger than the service accepts or does not decode, or a video has changed.
            UsageError: a file is no longer there.
        """
        body = await self._build(sources, retry)
        await self._accounting.record_resend(request)
        await self._post(request, body)

    async def _build(self, sources: Sequence[tuple[int, str, str | None]], retry: AnswerRetry | None) -> bytes:
        bodies, uploads = self._bodies, self._run_state.uploads
        if retry is not None:
            bodies = RequestBodyBuilder(self._session.header.options.retry_request(retry.error, retry.backends))
        seq, url, path = sources[0]
        if frame_of(seq) is not None:
            return bodies.for_files([await self._frames.frame_content(seq)], [sent_name(seq, url, path)])
        files = [path for _, _, path in sources if path is not None]
        if not files and len(sources) == 1 and uploads.must_upload(url):
            uploads.start_upload(seq)
            content, name = await self._uploads.fetch_content(url)
            return bodies.for_files([content], [name])
        if not files:
            return bodies.for_urls([url for _, url, _ in sources])
        async with AsyncExitStack() as stack:
            try:
                local = [await stack.enter_async_context(local_file(path)) for path in files]
            except OSError as error:
                raise UsageError(f"{files[0]}: {error.strerror or error}.") from error
            encoded, names = await encode_files(local)
        return bodies.for_files(encoded, names)

    async def _post(self, request: InFlightRequest, body: bytes) -> None:
        """POST a request with the JSON `body` once, and record its outcome.

        The POST is never retried or cancelled, because the service may have charged the request.
        """
        clock = self._session.clock
        self._run_state.start_request()
        record = self._limiter.on_sent(clock.monotonic())
        key = self._session.header.idempotency_key(request.submission_id)
        try:
            with request_span(self._session.header.options, request) as exchange:
                raw = await self._session.client.send_request(body, idempotency_key=key)
                received_s = clock.monotonic()
                received, classification = await self._accounting.receive(request, raw, classify_submission)
                exchange.end(raw, lambda: classification)
        except Unreachable as error:
            self._limiter.on_lost(record)
            await self._record_unreachable(request, error, record.sent_at)
        except OutcomeUnknown as error:
            self._limiter.on_lost(record)
            if error.body:
                partial = ReceivedAnswer(error.body, error.http_status or 0, clock.now())
                await self._accounting.store(request, partial)
            await self._accounting.record_unknown_outcome(request, str(error))
        else:
            self._unreachable_in_a_row = 0
            learn_from_answer(self._limiter, record, raw, classification, received_s)
            await self.record(request, received, classification)
        finally:
            self._run_state.end_request()

    async def record(self, request: InFlightRequest, received: ReceivedAnswer, classification: Classification) -> None:
        """Record what the answer to a POST says: the request was, for example, answered, accepted or throttled.

        Args:
            request: The request that was answered.
            received: The answer, which is in the journal.
            classification: The verdict on the answer.
        """
        verdict, error = classification.verdict, classification.error or f"HTTP {received.http_status}"
        accepted = {ResponseVerdict.ACKNOWLEDGED, ResponseVerdict.PROCESSING}
        if verdict in {ResponseVerdict.ANSWERED, ResponseVerdict.FAILED}:
            await self._accounting.record_answer(request, received, Event.ANSWER, classification)
        elif verdict in accepted and classification.request_id:
            await self._accounting.record_acknowledgement(request, classification.request_id)
        elif verdict is ResponseVerdict.THROTTLED:
            await self._accounting.revert_to_planned(request, Event.THROTTLE, error)
        elif verdict is ResponseVerdict.DENIED:
            await self._accounting.record_refusal(request, Refusal("access_denied", error, rows_retryable=True))
            self._run_state.stop(AccessDenied(error, hint="Set LIGHTMETER_API_KEY to a key of your account."))
        elif verdict is ResponseVerdict.NO_CREDITS:
            await self._accounting.record_refusal(request, Refusal("no_credits", error, rows_retryable=True))
            self._run_state.stop(OutOfCredits(error, hint="Add credits, then: lightmeter resume DIR"))
        elif verdict in {ResponseVerdict.REFUSED, ResponseVerdict.NOT_FOUND}:
            resend = self._schedule_resend(request, error)
            await self._accounting.record_refusal(request, Refusal("refused", error, rows_retryable=resend))
        else:
            await self._accounting.record_unknown_outcome(request, error)

    def _schedule_resend(self, request: InFlightRequest, error: str) -> bool:
        """Schedule the rows of a refused request to be sent again, as two halves or as an upload, if that is possible.

        Return whether the rows will be sent again. `error` is the error text of the service.
        """
        if self._run_state.bisection.on_batch_refused(request.seqs):
            return True
        return not request.is_retry and self._run_state.uploads.schedule_upload(*request.rows[0], error)

    async def _record_unreachable(self, request: InFlightRequest, error: Unreachable, sent_s: float) -> None:
        """Record that a request could not be delivered; delay later ones, or stop the run after several failures.

        A request that was sent before the end of the last pause shows nothing new.

        Args:
            request: The request.
            error: Why the service cannot be reached.
            sent_s: When the request was sent, in monotonic seconds.
        """
        await self._accounting.revert_to_planned(request, Event.UNREACHED, str(error))
        if sent_s < self._pause_end_s:
            return
        self._unreachable_in_a_row += 1
        if self._unreachable_in_a_row >= MAX_UNREACHABLE:
            self._run_state.stop(error)
        else:
            self._pause_end_s = self._session.clock.monotonic() + UNREACHABLE_PAUSE_S * 2**self._unreachable_in_a_row
            self._limiter.hold(self._pause_end_s)
