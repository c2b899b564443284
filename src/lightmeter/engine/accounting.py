"""Record every change of a run's credits: first in the journal, then in the run state.

A request is written to the journal before its first byte is sent. An answer is written to the journal before any code
interprets it. A *hold* is the highest price of a request: these credits are reserved until its charge is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lightmeter import sqlite, telemetry
from lightmeter.client.classify import Classification, ResponseVerdict
from lightmeter.client.http_answer import RawAnswer
from lightmeter.engine.batching import NameReliability
from lightmeter.engine.in_flight import InFlightRequest, PolledRequest, sent_name
from lightmeter.engine.run_state import RunState
from lightmeter.engine.url_uploads import free_failure_message
from lightmeter.errors import BudgetReached, JournalError
from lightmeter.export.asset_matching import UNMATCHED, outcome_of
from lightmeter.facts.answer_fields import AnswerFields
from lightmeter.journal.commands.record_answer import receive_and_release, receive_and_settle, store_answer
from lightmeter.journal.commands.submissions import (
    acknowledge,
    fail_row,
    hold_and_send,
    mark_uncertain,
    record_answer,
    record_refusal,
    resend,
    revert_to_planned,
    set_row_retry_obstacle,
    settle,
)
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, Refusal
from lightmeter.journal.queries.items import has_failed_with
from lightmeter.journal.queries.pending_rows import PendingRow
from lightmeter.journal.submission_states import Event, State
from lightmeter.money.request_prices import RequestPrices
from lightmeter.pricing.estimate import FrameRange
from lightmeter.run_session.session import Session

_SINGLE_IMAGES: Final = "The names in this service's answers do not identify every image: images are sent one by one."
_CHARGE_UNKNOWN: Final = (
    "A request failed and its answer names no charge: its price stays held until the balance shows the charge."
)


class Accounting:
    """Records each change of a request and its credits in the journal, then in the in-memory totals (`RunState`)."""

    def __init__(self, session: Session, run_state: RunState, prices: RequestPrices) -> None:
        self._session = session
        self._run_state = run_state
        self._prices = prices
        self._key_budget = session.key_budget

    def _now(self) -> float:
        return self._session.clock.now()

    async def hold(self, rows: Sequence[PendingRow], credits_: int) -> InFlightRequest | None:
        """Reserve credits for a request with these rows, record the request as being sent, and return the request.

        Return None if the budget of the run or of the API key has no room for the credits.

        Raises:
            JournalError: the disk is full, so the request cannot be recorded and must not be sent.
        """
        if self._session.journal.disk_is_full:
            raise JournalError(
                f"The disk of {self._session.out} is full: a request that cannot be recorded is not sent.",
                hint=f"Make room, then: lightmeter resume {self._session.out}",
            )
        if self._key_budget is not None and not await self._key_budget.hold(credits_):  # another run was faster
            return None
        try:
            is_retry, budget = rows[0].retry is not None, self._run_state.budget
            change = hold_and_send([row.seq for row in rows], credits_, budget, self._now(), retry=is_retry)
            submission_id = await self._session.journal.write(change)
        except BudgetReached:  # the totals in memory had room, but those in the journal decide
            await self._settle_key_budget(credits_, 0)
            return None
        self._run_state.hold(credits_)
        frames = [row.frames_high for row in rows]
        max_images = None if None in frames else sum(high or 0 for high in frames)
        if is_retry:
            return InFlightRequest(submission_id, credits_, (), (), max_images, is_retry=True)
        names = tuple((row.seq, sent_name(row.seq, row.url, row.path)) for row in rows)
        return InFlightRequest(submission_id, credits_, names, tuple(row.kind for row in rows), max_images)

    async def _release_hold(self, hold: int, paid: int = 0) -> None:
        self._run_state.release_hold(hold, paid)
        await self._settle_key_budget(hold, paid)

    async def _settle_key_budget(self, hold: int, paid: int) -> None:
        if self._key_budget is not None:
            await self._key_budget.settle(hold, paid)

    async def record_resend(self, request: InFlightRequest) -> None:
        """Record that an unanswered request is sent again to the embedded service; its price stays reserved.

        Both times, the request has the same header Idempotency-Key. So the embedded service charges it only once.
        """
        await self._session.journal.write(resend(request.submission_id, self._now()))
        self._run_state.move_rows("in_doubt", "pending", len(request.rows))

    async def record_acknowledgement(self, request: InFlightRequest, request_id: str) -> None:
        """Record that the service accepted a request under the id `request_id`, and pass it to the poller."""
        now = self._now()
        await self._session.journal.write(acknowledge(request.submission_id, request_id, now))
        self._run_state.add_poll(PolledRequest(self._session.clock.monotonic(), request, request_id, now))

    async def receive(
        self, request: InFlightRequest, raw: RawAnswer, classifier: Callable[..., Classification], polls: int = 0
    ) -> tuple[ReceivedAnswer, Classification]:
        """Store the bytes of an answer in the journal; only then classify it.

        Return the answer and its classification: a verdict, such as answered, throttled or refused, with its details.

        Args:
            request: The request that was answered.
            raw: The answer.
            classifier: The function for answers to a POST (`classify_submission`) or to a poll (`classify_poll`).
            polls: Number of polls that were sent to get the answer.
        """
        received = ReceivedAnswer(raw.body, raw.status, self._now(), polls)
        await self.store(request, received)
        return received, classifier(raw, now=received.at)

    async def store(self, request: InFlightRequest, received: ReceivedAnswer) -> None:
        """Store the bytes of a whole or partial answer in the journal, in place of those of an earlier one."""
        await self._session.journal.write(store_answer(request.submission_id, received))

    async def record_answer(
        self, request: InFlightRequest, received: ReceivedAnswer, event: Event, classification: Classification
    ) -> None:
        """Record the charge of an answer and the result of each row.

        If the answer reports a failure that cost nothing, the rows may be sent again in another form: a batch as two
        halves, or the content of an image instead of its URL. Such rows stay pending.

        Args:
            request: The request that was answered.
            received: The bytes of the answer, its HTTP status and its time.
            event: How the answer came: as the response to the POST, or by polling.
            classification: The verdict on the answer.
        """
        if self._schedule_resend(request, classification):
            outcome = outcome_of(received.raw, request.rows, request.hold, classification.data)
            await self._session.journal.write(receive_and_release(request.submission_id, received, event, outcome))
            await self._release_hold(request.hold, outcome.paid)
            return
        self._run_state.bisection.on_batch_accepted(request.seqs)
        try:
            outcome, note = self._interpret(request, received.raw, classification.data)
        except Exception:  # (an error in lightmeter: a later version can read the bytes, which are stored)
            await self._session.journal.write(record_answer(request.submission_id, received, event))
            raise
        change = receive_and_settle(request.submission_id, received, event, outcome, note)
        await self._session.journal.write(change)
        await self._count_outcome(request, outcome)

    def _schedule_resend(self, request: InFlightRequest, classification: Classification) -> bool:
        """Schedule the rows of a failed request to be sent again, as two halves or as an upload, if that is possible.

        It is possible only after certain failures that cost nothing. Return whether the rows will be sent again.
        `classification` is the verdict on the answer that reports the failure.
        """
        seqs, state = request.seqs, self._run_state
        free = AnswerFields(classification.data or {}).is_free
        if classification.verdict is ResponseVerdict.FAILED and free and state.bisection.on_batch_refused(seqs):
            return True
        if len(seqs) != 1:
            return False
        return state.uploads.schedule_upload(*request.rows[0], free_failure_message(classification.data))

    def count_rows_as_pending(self, state: State, hold: int, rows: int) -> None:
        """Count the rows of a request as pending instead of in doubt, so that `record_answer` can count them.

        The answer of this request is in the journal. An older version of lightmeter stored it, but could not read it.

        Args:
            state: The state of the request in the journal.
            hold: Credits reserved for the request.
            rows: Number of rows in the request.
        """
        if state is State.UNCERTAIN:
            self._run_state.remove_unresolved(hold)
        self._run_state.move_rows("in_doubt", "pending", rows)

    async def count_stored_answer(self, request: InFlightRequest, raw: bytes) -> None:
        """Record the charge and the result of each row from the answer `raw`, which is in the journal already."""
        outcome, note = self._interpret(request, raw, None)
        await self._session.journal.write(settle(request.submission_id, outcome, self._now(), note))
        await self._count_outcome(request, outcome)

    def _interpret(
        self, request: InFlightRequest, raw: bytes, answer: Mapping[str, Any] | None
    ) -> tuple[AnswerOutcome, str | None]:
        """Return (what an answer says about charge and rows, a note on an unexpected charge or None).

        Also learn two things from the answer: the prices, and whether the service names each asset by the URL that was
        sent. A charge that may be less than the full price, as after an error, counts as a price only if it is higher
        than the hold: otherwise later holds would be too low as well.

        `raw` is the body. `answer` is the body as a JSON object; None if it is not parsed yet or no JSON object.
        """
        outcome = outcome_of(raw, request.rows, request.hold, answer)
        above_hold = outcome.paid > request.hold  # then the full price is that much, or more
        if above_hold:
            self._run_state.set_underreserved(underreserved=True)
        if request.is_retry:
            self._prices.observe_retry(request.max_images, outcome.paid)
            return outcome, None
        images = len(request.rows)
        if outcome.rows_identified is not None and all("://" in name for _, name in request.rows):
            self._run_state.name_reliability.on_answer(images, identified=outcome.rows_identified)
            batches_wanted = images > 1 or self._session.header.options.batch_size not in {1, "auto"}
            if not outcome.rows_identified and batches_wanted:
                self._run_state.add_note(_SINGLE_IMAGES)
        full_price = outcome.charge_evidence > 1 and all(row.error is None for row in outcome.rows)
        if request.kinds and (full_price or above_hold):
            frames = FrameRange(min(images, request.max_images or images), request.max_images)
            return outcome, self._prices.observe(request.kinds, frames, outcome.paid)
        if not above_hold:
            self._prices.observe_unpriced(request.kinds or (None,))
        return outcome, None

    async def _count_outcome(self, request: InFlightRequest, outcome: AnswerOutcome) -> None:
        failed = sum(row.error is not None for row in outcome.rows)
        if outcome.charge_unknown:
            self._run_state.add_note(_CHARGE_UNKNOWN)
        else:
            await self._release_hold(request.hold, outcome.paid)
            telemetry.count("lightmeter.client.credits_paid", outcome.paid)
        self._run_state.move_rows("pending", "failed", failed)
        self._run_state.move_rows("pending", "ok", len(outcome.rows) - failed)

    async def record_refusal(self, request: InFlightRequest, refusal: Refusal) -> None:
        """Record that the service refused a request and charged nothing.

        `refusal` holds the reason, and whether the rows can be sent again. If not, the rows fail.
        """
        await self._session.journal.write(record_refusal(request.submission_id, refusal, self._now()))
        await self._release_hold(request.hold)
        if not refusal.rows_retryable:
            self._run_state.move_rows("pending", "failed", len(request.rows))

    async def revert_to_planned(self, request: InFlightRequest, event: Event, reason: str) -> None:
        """Record that a request had no effect: its rows are pending again.

        `event` says why: the request was not delivered, or was throttled. `reason` is a sentence about what happened.
        """
        await self._session.journal.write(revert_to_planned(request.submission_id, event, reason, self._now()))
        await self._release_hold(request.hold)

    async def record_unknown_outcome(self, request: InFlightRequest, reason: str) -> None:
        """Record that no usable answer came: the request may have been charged, so its price stays reserved.

        `reason` says what happened, as a sentence.
        """
        await self._session.journal.write(mark_uncertain(request.submission_id, reason, self._now()))
        self._run_state.add_unresolved(request.hold)
        self._run_state.move_rows("pending", "in_doubt", len(request.rows))

    async def fail_row(self, row: PendingRow, reason: str, error: str) -> None:
        """Record that a row could not be sent, so that the row fails.

        A row that has an answer, and was to be sent only to repeat the user's question (`--ask`), does not fail: it
        keeps its first answer.

        Args:
            row: The row.
            reason: A short code to group failures by.
            error: The message for the user.
        """
        if row.retry is not None:
            await self._session.journal.write(set_row_retry_obstacle(f"{reason}: {error}", row.seq))
            return
        await self._session.journal.write(fail_row(row.seq, reason, error))
        self._run_state.move_rows("pending", "failed", 1)

    async def release_proven(self, hold: int, paid: int, rows: int, status: str) -> None:
        """Release the credits reserved for a request whose charge the account balances have proven.

        This changes the run state and the budget of the API key; the caller has changed the journal before.

        Args:
            hold: Credits that were reserved.
            paid: Credits that were charged.
            rows: Number of rows of the request that have the status `in_doubt`; 0 if the service had reported that the
                request failed, because its rows then have the status `failed`.
            status: New status of the rows that are in doubt.
        """
        await self._release_hold(hold, paid)
        self._run_state.move_rows("in_doubt", status, rows)


def initial_name_reliability(db: sqlite.Connection, *, embedded: bool) -> NameReliability:
    """Return what is known, at a start of the run, about whether the names in answers identify the images.

    For the embedded service, they do. If the journal has an answer with a wrong name, they do not. Otherwise the result
    is `UNKNOWN`.
    """
    if embedded:
        return NameReliability.BATCHES_IDENTIFY
    return NameReliability.DO_NOT_IDENTIFY if has_failed_with(db, UNMATCHED) else NameReliability.UNKNOWN
