"""Finds out what became of requests that were sent and never answered, so that they are paid for once.

A service that is known to honour idempotency keys is asked again under the same key. Any other one has only its balance
to tell: it is read once nothing is in flight and no charge can come any more, twice the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from lightmeter.engine.accounting import Accounting, InFlightRequest
from lightmeter.engine.run_state import RunState
from lightmeter.engine.sender import Sender
from lightmeter.engine.session import Session
from lightmeter.errors import AccessDenied, LightmeterError, MediaTooLarge, OutcomeUnknown, Unreachable, UsageError
from lightmeter.export.asset_matching import expected_asset_name
from lightmeter.journal.balance_proofs import (
    BalanceReading,
    SubmissionResolution,
    apply_resolutions,
    open_submissions,
    opening_reading,
    record_balance,
    submissions_sent_between,
    throttled_since,
    unknown_charges_since,
    windows_in_doubt,
)
from lightmeter.journal.commands import get_meta, put_meta
from lightmeter.journal.state import HOLDING, IN_DOUBT, Event, State
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submissions import SubmissionRecord, sent_times, submissions_in
from lightmeter.money.balance_verdicts import build_proof, unprovable_document
from lightmeter.money.stale_journal import balance_gap, judge_balance_gap

__all__ = ["Reconciler", "to_in_flight_request"]

READINGS_APART_S: Final = 1.0
MAX_READINGS: Final = 8
MAX_FRUITLESS: Final = 3
"""Times in a row that everything was lost again before the service is taken for one that does not answer."""

LONGEST_NAP_S: Final = 0.5

_WAITING: Final = (
    "A request got no answer. The run waits until it can no longer be charged: then the balance tells whether it was. "
    "Ctrl-C leaves its rows in doubt."
)

_ACCOUNT: Final = "account_read"

_AFTER: Final = {Event.PROVE_UNPAID: "pending", Event.PROVE_PAID: "failed"}


def to_in_flight_request(one: SubmissionRecord) -> InFlightRequest:
    """A submission read back from the journal, as the run handles it."""
    rows = tuple((seq, expected_asset_name(url, path)) for seq, url, path in one.rows)
    return InFlightRequest(one.submission_id, one.hold, rows, retry=one.retry is not None)


class Reconciler:
    """Resolves what is uncertain. To be asked only while nothing is in flight or polled for.

    Args:
        session: The open run.
        standing: Where it stands.
        books: Where money is written down.
        sender: Asks again where that is safe.
    """

    def __init__(self, session: Session, standing: RunState, books: Accounting, sender: Sender) -> None:
        self._session = session
        self._standing = standing
        self._books = books
        self._sender = sender
        self._fruitless = 0
        self._answered = -1

    async def resolve(self) -> int:
        """Resolve what can be; returns how many rows wait to be sent again."""
        if self._session.endpoint.embedded:
            await self._ask_again()
            return 0
        answered = self._standing.counts["ok"] + self._standing.counts["failed"]
        if self._answered == answered:
            self._fruitless += 1
        else:
            self._fruitless, self._answered = 0, answered
        if self._fruitless >= MAX_FRUITLESS:
            why = "The service takes requests and does not answer them."
            self._standing.stop(OutcomeUnknown(why, hint="Go on later: lightmeter resume DIR"))
            return 0
        waiting = await self._by_balance()
        return waiting + await self._judge_again()

    async def _ask_again(self) -> None:
        """The embedded service honours idempotency keys: there a lost request is asked for again, and paid once."""
        self._standing.lost = self._standing.lost_credits = 0
        with open_read_only(self._session.out) as db:
            lost = list(submissions_in(db, {State.UNCERTAIN}))
        for one in lost:
            places = [(url, path) for _, url, path in one.rows]
            retry = None
            if one.retry is not None:
                places, retry = [(one.retry.url, one.retry.path)], one.retry.retry
            try:
                await self._sender.resend(to_in_flight_request(one), places, retry)
            except (MediaTooLarge, UsageError):  # its file is gone: it stays in doubt
                continue

    async def check_opening_balance(self, balance: int) -> None:
        """Judge the balance that a run starts with, and let the proofs to come count from it.

        Raises:
            JournalConflict: it is lower than the journal explains, so the journal must have gone back.
        """
        session = self._session
        if not session.endpoint.embedded:
            accounts = [self._account_under(run_id) for run_id in session.header.run_ids]
            with open_read_only(session.out) as db:
                gap = balance_gap(db, balance) if get_meta(db).get(_ACCOUNT) in accounts else 0
            at, sole = session.clock.now(), session.header.options.sole_spender
            held = await judge_balance_gap(session.journal, session.check, gap, at, sole_spender=sole)
            self._standing.held += held
        await self.check_balance()
        await self.open_window(balance)

    async def open_window(self, balance: int) -> None:
        """Let the proofs to come count from this balance, unless something from before may still be charged."""
        with open_read_only(self._session.out) as db:
            if open_submissions(db):
                return
        await self._session.journal.write(record_balance(balance, self._session.clock.now(), opens=True))
        await self._session.journal.write(put_meta({_ACCOUNT: self._account}))

    @property
    def _account(self) -> str:
        """Tells one key from another, and nothing else: balances of two accounts prove nothing together."""
        return self._account_under(self._session.header.run_id)

    def _account_under(self, run_id: str) -> str:
        key = self._session.endpoint.api_key
        secret = "" if key is None else key.get_secret_value()
        return hashlib.sha256(f"{run_id}\0{secret}".encode()).hexdigest()[:16]

    async def check_balance(self) -> None:
        """Read what the balance says of requests that were refused for being too fast, or failed with no charge named.

        The first are presumed to cost nothing and were sent again long ago; the price of the second stays held until
        a balance tells. Nothing is waited for: what may still be charged is looked at after the next start. Where
        something was lost too, that was said with it.
        """
        with open_read_only(self._session.out) as db:
            opening = opening_reading(db)
            if self._session.endpoint.embedded or opening is None or open_submissions(db):
                return
            throttled = throttled_since(db, opening.place)
            failed = unknown_charges_since(db, opening.place)
            same_account = get_meta(db).get(_ACCOUNT) == self._account
        if self._left_s(failed) > 0:
            return
        if same_account and (throttled or failed) and (readings := await self._two_equal()) is not None:
            await self._judge(opening, readings)
            await self.open_window(readings[1].balance)

    async def _by_balance(self) -> int:
        with open_read_only(self._session.out) as db:
            opening = opening_reading(db)
            lost = [(one.submission_id, len(one.rows)) for one in submissions_in(db, {State.UNCERTAIN})]
            sent_at = sent_times(db, State.UNCERTAIN)
            if get_meta(db).get(_ACCOUNT) != self._account:
                opening = None
        if not lost:
            self._standing.lost = self._standing.lost_credits = 0
            return 0
        phase, self._standing.phase = self._standing.phase, "reconciling"
        try:
            readings = await self._readings(opening, sent_at, rows=sum(rows for _, rows in lost))
        finally:
            self._standing.phase, self._standing.waiting = phase, None
        if readings is None:
            return 0
        waiting = await self._judge(opening, readings)
        self._standing.lost = self._standing.lost_credits = 0
        await self.open_window(readings[1].balance)
        return waiting

    async def _readings(
        self, opening: BalanceReading | None, sent_at: Mapping[int, float], *, rows: int
    ) -> tuple[BalanceReading, BalanceReading] | None:
        """Two equal balances that decide what became of the lost requests; None if the user will not wait for them.

        Credits that are missing already never come back, so where they leave nothing to be proven, waiting cannot
        change that. Else nothing is decided before the last charge can have come.
        """
        if not self._left_s(sent_at) or opening is None:
            return await self._two_equal()
        early = await self._two_equal()
        if early is not None and self._decided(opening, early):
            return early
        return await self._two_equal() if await self._final(sent_at, rows) else None

    def _decided(self, opening: BalanceReading, readings: tuple[BalanceReading, BalanceReading]) -> bool:
        """Whether no charge to come can change what these balances prove."""
        sole_spender = self._session.header.options.sole_spender
        with open_read_only(self._session.out) as db:
            seen = submissions_sent_between(db, opening.place, readings[1].place)
        document, rulings = build_proof(opening, readings, seen, sole_spender=sole_spender)
        if not sole_spender:
            return bool(rulings) and all(ruling.event is Event.GIVE_UP for ruling in rulings)
        unknown = sum(one.hold for one in seen if one.state in HOLDING or one.throttled)
        return int(document["missing"]) >= unknown

    def _left_s(self, sent_at: Mapping[int, float]) -> float:
        """Seconds until the last of these requests can no longer be charged; 0 once none can."""
        return max((self._session.charges_final_s - self._age_s(key, at) for key, at in sent_at.items()), default=0.0)

    def _age_s(self, submission_id: int, sent_at: float) -> float:
        earlier = submission_id < self._session.first_submission_id
        return self._session.clock.min_age_s(sent_at, earlier=earlier)

    async def _final(self, sent_at: Mapping[int, float], rows: int) -> bool:
        """Wait until no charge can come any more; False if the user will not."""
        clock, standing = self._session.clock, self._standing
        standing.note(_WAITING)
        while (left_s := self._left_s(sent_at)) > 0:
            if standing.interrupted:
                return False
            standing.waiting = (
                f"{left_s:.0f} s at most for the balance to tell of {rows} {'row' if rows == 1 else 'rows'}"
            )
            await clock.sleep(min(left_s, LONGEST_NAP_S))
        standing.waiting = "reading the balance twice"
        return not standing.interrupted

    async def _two_equal(self) -> tuple[BalanceReading, BalanceReading] | None:
        """Two balances in a row that are the same; None if there are none to be had now."""
        before: BalanceReading | None = None
        for _ in range(MAX_READINGS):
            try:
                balance = await self._session.client.credits()
            except AccessDenied as error:
                self._standing.stop(error)
                return None
            except (Unreachable, OutcomeUnknown):
                balance = None
            except LightmeterError as error:  # an answer that is no balance
                self._standing.stop(error)
                return None
            if balance is None:
                before = None
            else:
                now = await self._session.journal.write(record_balance(balance, self._session.clock.now(), opens=False))
                if before is not None and before.balance == balance:
                    return before, now
                before = now
            await self._session.clock.sleep(min(READINGS_APART_S, self._session.charges_final_s))
        return None

    async def _judge(
        self, opening: BalanceReading | None, readings: tuple[BalanceReading, BalanceReading], *, again: bool = False
    ) -> int:
        if opening is None:  # a journal of before balances were kept, or another account
            await self._give_up(readings[1])
            return 0
        with open_read_only(self._session.out) as db:
            seen = submissions_sent_between(db, opening.place, readings[1].place)
            rows = {one.submission_id: len(one.rows) for one in submissions_in(db, IN_DOUBT)}
        document, rulings = build_proof(opening, readings, seen, sole_spender=self._session.header.options.sole_spender)
        holds = {one.submission_id: one.hold for one in seen}
        if not rulings and (again or not document["notes"]):
            return 0
        await self._session.journal.write(apply_resolutions(opening, readings[1], document, rulings))
        waiting = 0
        for ruling in rulings:
            waiting += await self._follow(ruling, holds[ruling.submission_id], rows.get(ruling.submission_id, 0))
        return waiting

    async def _give_up(self, now: BalanceReading) -> None:
        why = "No balance of this account was read before it was sent: nothing can be proven."
        with open_read_only(self._session.out) as db:
            rulings = [
                SubmissionResolution(one.submission_id, Event.GIVE_UP, why)
                for one in submissions_in(db, {State.UNCERTAIN})
            ]
        await self._session.journal.write(apply_resolutions(now, now, unprovable_document(now, rulings, why), rulings))

    async def _follow(self, ruling: SubmissionResolution, hold: int, rows: int) -> int:
        after = _AFTER.get(ruling.event)
        if after is None:
            return 0
        await self._books.judged(hold, ruling.paid, rows, after)
        return rows if after == "pending" else 0

    async def _judge_again(self) -> int:
        """Once the user has said that nobody else spends, earlier readings may prove what they did not before."""
        if not self._session.header.options.sole_spender:
            return 0
        with open_read_only(self._session.out) as db:
            windows = windows_in_doubt(db)
        return sum([await self._judge(opening, (closing, closing), again=True) for opening, closing in windows])
