"""Every movement of a run's money, in one place: the journal first, then what is known in memory.

The order is the whole point: what could be paid for is on disk before the first byte leaves, and what came back is on
disk before anything looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lightmeter.client.classify import Classification, ResponseVerdict
from lightmeter.engine.batching import Bisection, NameReliability, NameReliabilityTracker
from lightmeter.engine.run_state import RunState
from lightmeter.engine.session import Session
from lightmeter.engine.uploads import Uploads, free_failure_message
from lightmeter.errors import BudgetReached, JournalError
from lightmeter.export.asset_matching import UNMATCHED, expected_asset_name, outcome_of
from lightmeter.journal.answer_retries import mark_not_retried
from lightmeter.journal.commands import (
    acknowledge,
    fail_row,
    hold_and_send,
    mark_uncertain,
    record_answer,
    record_refusal,
    resend,
    revert_to_planned,
    settle,
    store_raw_answer,
)
from lightmeter.journal.items import PendingRow, has_failed_with
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, Refusal
from lightmeter.journal.settle import receive_and_release, receive_and_settle
from lightmeter.journal.state import Event, State
from lightmeter.journal.store import open_read_only
from lightmeter.money.key_budget import KeyBudget
from lightmeter.money.request_prices import RequestPrices
from lightmeter.pricing.estimate import FrameRange

__all__ = ["Accounting", "AcknowledgedRequest", "InFlightRequest"]


@dataclass(frozen=True, slots=True)
class InFlightRequest:
    """A submission that is on its way.

    Attributes:
        submission_id: Its id in the journal.
        hold: Credits set aside.
        rows: Its rows as (seq, name sent).
        kinds: What the rows are: image, video, or None when not known.
        pictures: Most pictures it is charged as; None when there is no bound.
        retry: It asks about a row again: it has no rows of its own, so no row changes its status with it.
    """

    submission_id: int
    hold: int
    rows: tuple[tuple[int, str], ...]
    kinds: tuple[str | None, ...] = ()
    pictures: int | None = None
    retry: bool = False


@dataclass(frozen=True, slots=True)
class AcknowledgedRequest:
    """A submission whose answer must be polled for."""

    sent: InFlightRequest
    request_id: str
    acked_at: float


class Accounting:
    """Writes down what is held, charged, let go and lost, in the journal and in the run's standing.

    Args:
        session: The open run.
        standing: Where the run stands.
        prices: What charges teach.
        key: The budget of the key, if there is one.
    """

    def __init__(
        self, session: Session, standing: RunState, prices: RequestPrices, key: KeyBudget | None = None
    ) -> None:
        self._session = session
        self._standing = standing
        self._prices = prices
        self._key = key

        self.bisection = Bisection()
        """Rows of refused batches: they are halved, so that one bad row does not fail its neighbours."""

        self.names = NameReliabilityTracker(
            NameReliability.BATCHES_IDENTIFY if session.endpoint.embedded else _names_so_far(session)
        )
        """Whether images may travel together."""

        self.uploads = Uploads(session.header.options.upload)

    @property
    def waits(self) -> bool:
        """Whether rows that were sent wait to be sent otherwise."""
        return self.bisection.waits or self.uploads.waits

    def _now(self) -> float:
        return self._session.clock.now()

    async def hold(self, rows: Sequence[PendingRow], credits_: int) -> InFlightRequest | None:
        """Set the price of a request aside and write down that it leaves; None if a budget does not hold it.

        Raises:
            JournalError: the disk is full; what is left of it is for the answers in flight.
        """
        if self._session.journal.disk_is_full:
            raise JournalError(
                f"The disk of {self._session.out} is full: no request is sent that could not be written down.",
                hint=f"Make room, then: lightmeter resume {self._session.out}",
            )
        if self._key is not None and not await self._key.hold(credits_):
            self._standing.key_budget_exhausted = True
            return None
        try:
            retry, budget = rows[0].retry is not None, self._standing.budget
            change = hold_and_send([row.seq for row in rows], credits_, budget, self._now(), retry=retry)
            submission_id = await self._session.journal.write(change)
        except BudgetReached:  # the engine asked first; the journal has the last word
            await self._let_go(credits_, 0)
            return None
        self._standing.held += credits_
        highs = [row.frames_high for row in rows]
        pictures = None if None in highs else sum(high or 0 for high in highs)
        if retry:
            return InFlightRequest(submission_id, credits_, (), (), pictures, retry=True)
        names = tuple((row.seq, expected_asset_name(row.url, row.path)) for row in rows)
        return InFlightRequest(submission_id, credits_, names, tuple(row.kind for row in rows), pictures)

    async def _let_go(self, held: int, paid: int) -> None:
        if self._key is not None:
            await self._key.settle(held, paid)
            self._standing.key_budget_exhausted = False

    async def ask_again(self, sent: InFlightRequest) -> None:
        """A lost request is about to leave again under the same idempotency key; its price stays held."""
        await self._session.journal.write(resend(sent.submission_id, self._now()))
        self._standing.moved("in_doubt", "pending", len(sent.rows))

    async def acknowledge(self, sent: InFlightRequest, request_id: str) -> AcknowledgedRequest:
        """The service took it and will have its answer under `request_id`."""
        now = self._now()
        await self._session.journal.write(acknowledge(sent.submission_id, request_id, now))
        return AcknowledgedRequest(sent, request_id, now)

    async def store_raw_answer(self, sent: InFlightRequest, received: ReceivedAnswer) -> None:
        """An answer is here that is not strictly JSON: its bytes are kept before anybody reads them."""
        await self._session.journal.write(store_raw_answer(sent.submission_id, received))

    async def keep(
        self, sent: InFlightRequest, received: ReceivedAnswer, event: Event, judgement: Classification
    ) -> None:
        """An answer is here: keep its bytes, and write down what it cost and where each row's asset is.

        What came to nothing, and says that it cost nothing, may be asked for otherwise: a batch in halves, an address
        that could not be fetched by its bytes. Its rows wait.
        """
        seqs = [seq for seq, _ in sent.rows]
        halved = judgement.verdict is ResponseVerdict.FAILED and _free(judgement) and self.bisection.refused(seqs)
        if halved or (len(seqs) == 1 and self.uploads.instead(sent.rows[0][1], free_failure_message(judgement.data))):
            await self._release(sent, received, event, judgement)
            return
        self.bisection.taken(seqs)
        try:
            outcome, note = self._read(sent, received.raw, judgement.data)
        except Exception:  # (a bug of ours, whatever it is: the bytes are kept first, and read by the next version)
            await self._session.journal.write(record_answer(sent.submission_id, received, event))
            raise
        change = receive_and_settle(sent.submission_id, received, event, outcome, note)
        await self._session.journal.write(change)
        await self._count(sent, outcome)

    def found(self, state: State, hold: int, rows: int) -> None:
        """The answer of a lost request can be read after all: its rows wait to be settled with it."""
        if state is State.UNCERTAIN:
            self._standing.lost -= 1
            self._standing.lost_credits = max(0, self._standing.lost_credits - hold)
        self._standing.moved("in_doubt", "pending", rows)

    async def settle(self, sent: InFlightRequest, raw: bytes) -> None:
        """Read an answer that is on disk, and write down what it cost and where each row's asset is."""
        outcome, note = self._read(sent, raw, None)
        await self._session.journal.write(settle(sent.submission_id, outcome, self._now(), note))
        await self._count(sent, outcome)

    async def _release(
        self, sent: InFlightRequest, received: ReceivedAnswer, event: Event, judgement: Classification
    ) -> None:
        outcome = outcome_of(received.raw, sent.rows, sent.hold, judgement.data)
        await self._session.journal.write(receive_and_release(sent.submission_id, received, event, outcome))
        self._standing.held -= sent.hold
        await self._let_go(sent.hold, outcome.paid)
        self._standing.changed.set()

    def _read(
        self, sent: InFlightRequest, raw: bytes, answer: Mapping[str, Any] | None
    ) -> tuple[AnswerOutcome, str | None]:
        outcome = outcome_of(raw, sent.rows, sent.hold, answer)
        if sent.retry:
            self._prices.observe_retry(sent.pictures, outcome.paid)
            return outcome, None
        if outcome.rows_identified is not None and all("://" in name for _, name in sent.rows):
            self.names.on_answer(len(sent.rows), identified=outcome.rows_identified)
            if not outcome.rows_identified and (
                len(sent.rows) > 1 or self._session.header.options.batch_size not in {1, "auto"}
            ):
                self._standing.note(_ALONE)
        if outcome.charge_evidence > 1 and sent.kinds and all(placed.error is None for placed in outcome.rows):
            frames = FrameRange(min(len(sent.rows), sent.pictures or len(sent.rows)), sent.pictures)
            return outcome, self._prices.observe(sent.kinds, frames, outcome.paid)
        self._prices.observe_unpriced(sent.kinds or (None,))
        return outcome, None

    async def _count(self, sent: InFlightRequest, outcome: AnswerOutcome) -> None:
        failed = sum(placed.error is not None for placed in outcome.rows)
        if outcome.charge_unknown:
            self._standing.note(_CHARGE_UNKNOWN)
        else:
            self._standing.held -= sent.hold
            self._standing.paid += outcome.paid
            await self._let_go(sent.hold, outcome.paid)
        self._standing.moved("pending", "failed", failed)
        self._standing.moved("pending", "ok", len(outcome.rows) - failed)

    async def refuse(self, sent: InFlightRequest, refusal: Refusal) -> None:
        """The service did not take it: nothing was charged."""
        await self._session.journal.write(record_refusal(sent.submission_id, refusal, self._now()))
        self._standing.held -= sent.hold
        await self._let_go(sent.hold, 0)
        if not refusal.rows_retryable:
            self._standing.moved("pending", "failed", len(sent.rows))

    async def revert_to_planned(self, sent: InFlightRequest, event: Event, why: str) -> None:
        """It never counted (unreached, throttled): its rows wait."""
        await self._session.journal.write(revert_to_planned(sent.submission_id, event, why, self._now()))
        self._standing.held -= sent.hold
        await self._let_go(sent.hold, 0)

    async def lose(self, sent: InFlightRequest, why: str, received: ReceivedAnswer | None = None) -> None:
        """No usable answer came: it may have been charged, and stays held; `received` is what came all the same."""
        await self._session.journal.write(mark_uncertain(sent.submission_id, why, self._now(), received))
        self._standing.lost += 1
        self._standing.lost_credits += sent.hold
        self._standing.moved("pending", "in_doubt", len(sent.rows))

    async def fail(self, row: PendingRow, reason: str, error: str) -> None:
        """A row that could not even be sent."""
        if row.retry is not None:
            await self._session.journal.write(mark_not_retried(f"{reason}: {error}", row.seq, row.seq))
            return
        await self._session.journal.write(fail_row(row.seq, reason, error))
        self._standing.moved("pending", "failed", 1)

    async def judged(self, hold: int, paid: int, rows: int, after: str) -> None:
        """A proof has ended the hold of a request; it is in the journal already.

        Args:
            hold: Credits that were set aside.
            paid: Credits that it proves were charged.
            rows: How many of its rows were in doubt: those of a lost request, none of a failed one.
            after: What those rows are now.
        """
        self._standing.held -= hold
        self._standing.paid += paid
        await self._let_go(hold, paid)
        self._standing.moved("in_doubt", after, rows)


_ALONE: Final = "The names in this service's answers do not tell which image is which: images are sent one by one."
_CHARGE_UNKNOWN: Final = "A request failed and its answer names no charge: its price stays held until a balance tells."


def _names_so_far(session: Session) -> NameReliability:
    """What an earlier start of this run learned: once a row was unmatched, no images travel together."""
    with open_read_only(session.out) as db:
        return NameReliability.DO_NOT_IDENTIFY if has_failed_with(db, UNMATCHED) else NameReliability.UNKNOWN


def _free(judgement: Classification) -> bool:
    """Whether the answer itself says that nothing was charged: silence is no proof."""
    said = (judgement.data or {}).get("credits_paid")
    return said == 0 and not isinstance(said, bool)
