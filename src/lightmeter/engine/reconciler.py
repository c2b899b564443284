"""Find out whether requests that got no answer were charged, so that no row is paid for twice.

If a service honors idempotency keys, the request is sent again under the same key. Otherwise only the balance of the
account can prove a charge. The balance is read when no request is under way and no charge can come any more, until two
readings in a row are equal. A *ruling* is what the readings prove about one request: charged, not charged, or unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from lightmeter.engine.accounting import Accounting
from lightmeter.engine.in_flight import to_in_flight_request
from lightmeter.engine.run_state import RunState
from lightmeter.engine.sender import Sender
from lightmeter.errors import FetchError, LightmeterError, MediaError, OutcomeUnknown, Unreachable, UsageError
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
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.queries.submissions import sent_times, submissions_in
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submission_states import IN_DOUBT, Event, State
from lightmeter.money.lost_answer_charges import build_proof, unprovable_document
from lightmeter.money.stale_journal import balance_gap, judge_balance_gap
from lightmeter.run_session.session import Session

READING_INTERVAL_S: Final = 1.0
"""Seconds between two balance readings. A charge made during the first reading appears in the second one at least."""

MAX_READINGS: Final = 8
"""Most readings of a balance that keeps changing because somebody else spends, too; after them nothing is proven."""

MAX_FRUITLESS_CALLS: Final = 3
"""The run stops after this many repeated calls of `Reconciler.resolve` if no row was answered between the calls."""

MAX_SLEEP_S: Final = 0.5
"""Most seconds of one sleep within a wait: between sleeps, the wait reacts to Ctrl-C and shows the time left."""

_WAIT_NOTE: Final = (
    "A request got no answer. The run waits until it can no longer be charged: then the balance shows whether it was. "
    "Ctrl-C leaves its rows in doubt."
)

_ACCOUNT_KEY: Final = "account_read"
"""Name under which the journal stores a hash that identifies the account whose balance was read."""

_STATUS_AFTER: Final = {Event.PROVE_UNPAID: "pending", Event.PROVE_PAID: "failed"}
"""Ruling on a lost request → new status of its rows. Other rulings change no status."""

BalancePair = tuple[BalanceReading, BalanceReading]
"""Two equal balance readings, made one after the other; the second one is the later one."""


class Reconciler:
    """Finds out whether requests without a usable answer were charged. Use it only while no answer can still come."""

    def __init__(self, session: Session, run_state: RunState, accounting: Accounting, sender: Sender) -> None:
        self._session = session
        self._run_state = run_state
        self._accounting = accounting
        self._sender = sender
        self._fruitless_calls = 0
        self._rows_answered = -1
        self._is_inexact = False

    async def resolve(self) -> int:
        """Find out which unanswered requests were charged, as far as this can be proven.

        Return how many rows are pending again, because their requests were not charged.
        """
        if self._session.endpoint.embedded:
            await self._resend_lost()
            return 0
        rows_answered = self._run_state.counts["ok"] + self._run_state.counts["failed"]
        if self._rows_answered == rows_answered:
            self._fruitless_calls += 1
        else:
            self._fruitless_calls, self._rows_answered = 0, rows_answered
        if self._fruitless_calls >= MAX_FRUITLESS_CALLS:
            message = "The service accepts requests and does not answer them."
            self._run_state.stop(OutcomeUnknown(message, hint="Continue later: lightmeter resume DIR"))
            return 0
        pending = await self._resolve_by_balance()
        if self._session.header.options.sole_spender:  # then readings may prove more than before the user said so
            with open_read_only(self._session.out) as db:
                earlier = windows_in_doubt(db)
            for opening, closing in earlier:
                pending += await self._rule(opening, (closing, closing), readings_were_used=True)
        return pending

    async def _resend_lost(self) -> None:
        """Send lost requests again to the embedded service, which charges each only once, by its idempotency key."""
        self._run_state.clear_unresolved()
        with open_read_only(self._session.out) as db:
            lost = list(submissions_in(db, {State.UNCERTAIN}))
        for record in lost:
            sources = list(record.rows)
            retry = None
            if not record.rows and record.retry is None:  # its row is no longer in the manifest
                continue
            if record.retry is not None:
                row = record.retry
                sources, retry = [(row.seq, row.url, row.path)], row.retry
            try:
                await self._sender.resend(to_in_flight_request(record), sources, retry)
            except (FetchError, MediaError, UsageError):  # its file is gone: it stays in doubt
                continue

    async def check_opening_balance(self, balance: int) -> None:
        """Compare the balance at a start of the run with the charges in the journal; then record the balance.

        Later balances are compared with the recorded one to prove what requests cost.

        Raises:
            JournalConflict: the balance is lower than the charges explain, so the journal must be an older copy.
        """
        session = self._session
        if not session.endpoint.embedded:
            accounts = [self._account(run_id) for run_id in session.header.run_ids]
            with open_read_only(session.out) as db:
                gap = balance_gap(db, balance) if get_meta(db).get(_ACCOUNT_KEY) in accounts else 0
            now, sole = session.clock.now(), session.header.options.sole_spender
            self._run_state.hold(await judge_balance_gap(session.journal, session.check, gap, now, sole_spender=sole))
        await self.check_balance()
        await self._open_window(balance)

    async def _open_window(self, balance: int) -> None:
        """Record a balance with which later ones are compared; do nothing if some request may still be charged."""
        with open_read_only(self._session.out) as db:
            if open_submissions(db):
                return
        await self._session.journal.write(record_balance(balance, self._session.clock.now(), opens=True))
        await self._session.journal.write(put_meta({_ACCOUNT_KEY: self._account()}))

    def _account(self, run_id: str | None = None) -> str:
        """Return a hash of the run id and the API key, to tell whether two balances of the run are of one account.

        Hashes of different runs cannot be compared. A run whose journal was restored from a copy has several ids:
        `run_id` is one of them (`RunHeader.run_ids`), or None for the present one.
        """
        key = self._session.endpoint.api_key
        secret = "" if key is None else key.get_secret_value()
        return hashlib.sha256(f"{run_id or self._session.header.run_id}\0{secret}".encode()).hexdigest()[:16]

    async def check_balance(self) -> None:
        """Find out from the balance what throttled requests cost, and what failed requests of unknown charge cost.

        The result is recorded in the journal. If it shows what a failed request cost, the credits reserved for the
        request are released, and its charge counts as paid. About throttled requests, it is only a note to the user.

        If a request may still be charged, do nothing now: the next start of the run finds it out.
        """
        with open_read_only(self._session.out) as db:
            opening = opening_reading(db)
            if self._session.endpoint.embedded or opening is None or open_submissions(db):
                return
            throttled = throttled_since(db, opening.last_transition_id)
            failed = unknown_charges_since(db, opening.last_transition_id)
            same_account = get_meta(db).get(_ACCOUNT_KEY) == self._account()
        if self._seconds_until_final(failed) > 0:
            return
        if same_account and (throttled or failed) and (readings := await self._read_stable_balance()) is not None:
            await self._rule(opening, readings)
            await self._open_window(readings[1].balance)

    async def _resolve_by_balance(self) -> int:
        """Find out from the balance what requests without an answer cost.

        Return how many rows are pending again, because their requests were not charged.
        """
        with open_read_only(self._session.out) as db:
            opening = opening_reading(db)
            rows_lost = [len(one.rows) for one in submissions_in(db, {State.UNCERTAIN})]
            sent_at = sent_times(db, State.UNCERTAIN)
            if get_meta(db).get(_ACCOUNT_KEY) != self._account():
                opening = None
            if opening is not None:  # the same balances decide about failed requests, which may be charged later, too
                sent_at |= unknown_charges_since(db, opening.last_transition_id)
        if not rows_lost:
            self._run_state.clear_unresolved()
            return 0
        phase, readings = self._run_state.enter_phase("reconciling"), None
        try:
            # (no later charge can matter if there is no earlier balance to compare with)
            if opening is None or await self._wait_until_final(sent_at, rows=sum(rows_lost)):
                readings = await self._read_stable_balance()
        finally:
            self._run_state.enter_phase(phase)
            self._run_state.show_waiting(None)
        if readings is None:
            return 0
        pending = await self._rule(opening, readings)
        self._run_state.clear_unresolved()
        await self._open_window(readings[1].balance)
        return pending

    def _seconds_until_final(self, sent_at: Mapping[int, float]) -> float:
        """Return the seconds until requests sent at these times can no longer be charged.

        The result is 0 or less if they already cannot be charged any more. `sent_at` is request id → time in seconds
        since the epoch.
        """
        clock, first = self._session.clock, self._session.first_submission_id
        ages_s = (clock.min_age_s(at, earlier=submission_id < first) for submission_id, at in sent_at.items())
        return max((self._session.charges_final_s - age_s for age_s in ages_s), default=0.0)

    async def _wait_until_final(self, sent_at: Mapping[int, float], rows: int) -> bool:
        """Wait until requests sent at these times can no longer be charged; return False if the user stops the run.

        `sent_at` is request id → time in seconds since the epoch; `rows` is the number of rows, to show to the user.
        """
        clock, state = self._session.clock, self._run_state
        while (left_s := self._seconds_until_final(sent_at)) > 0:
            if state.interrupted:
                return False
            state.add_note(_WAIT_NOTE)
            count = f"{rows} {'row' if rows == 1 else 'rows'}"
            state.show_waiting(f"{left_s:.0f} s at most until the balance shows the charge of {count}")
            await clock.sleep(min(left_s, MAX_SLEEP_S))
        state.show_waiting("reading the balance twice")
        return not state.interrupted

    async def _read_stable_balance(self) -> BalancePair | None:
        """Read the balance until two readings in a row are equal; return these two.

        Return None after `MAX_READINGS` readings. Also return None, and stop the run, if the service denies access or
        gives no balance.
        """
        before: BalanceReading | None = None
        for _ in range(MAX_READINGS):
            try:
                exact = await self._session.client.exact_credits()
                balance = await self._session.client.credits() if exact is None else exact
                self._is_inexact = self._is_inexact or exact is None
            except (Unreachable, OutcomeUnknown):
                before = None
            except LightmeterError as error:  # access denied, or an answer that is no balance
                self._run_state.stop(error)
                return None
            else:
                now = await self._session.journal.write(record_balance(balance, self._session.clock.now(), opens=False))
                if before is not None and before.balance == balance:
                    return before, now
                before = now
            await self._session.clock.sleep(min(READING_INTERVAL_S, self._session.charges_final_s))
        return None

    async def _rule(
        self, opening: BalanceReading | None, readings: BalancePair, *, readings_were_used: bool = False
    ) -> int:
        """Record what two balances prove about the requests between them; return how many rows are pending again.

        Args:
            opening: The balance before the requests. None if no balance of this account was read before: then record
                that nothing can be proven about the unanswered requests, and return 0.
            readings: Two equal readings of the balance after the requests.
            readings_were_used: Whether an earlier call has decided from these readings, before the user said that
                nobody else spends from the account. If True, record nothing unless there is a ruling on some request
                now.
        """
        if opening is None or self._is_inexact:
            await self._rule_unprovable(readings[1])
            return 0
        with open_read_only(self._session.out) as db:
            submissions = submissions_sent_between(db, opening.last_transition_id, readings[1].last_transition_id)
            rows = {one.submission_id: len(one.rows) for one in submissions_in(db, IN_DOUBT)}
        sole_spender = self._session.header.options.sole_spender
        document, rulings = build_proof(opening, readings, submissions, sole_spender=sole_spender)
        if not rulings and (readings_were_used or not document["notes"]):
            return 0
        await self._session.journal.write(apply_resolutions(opening, readings[1], document, rulings))
        holds = {one.submission_id: one.hold for one in submissions}
        pending = 0
        for ruling in rulings:
            status, row_count = _STATUS_AFTER.get(ruling.event), rows.get(ruling.submission_id, 0)
            if status is not None:
                await self._accounting.release_proven(holds[ruling.submission_id], ruling.paid, row_count, status)
                pending += row_count if status == "pending" else 0
        return pending

    async def _rule_unprovable(self, reading: BalanceReading) -> None:
        """Record that the balance `reading` cannot prove what unanswered requests cost.

        Either no earlier balance is known, or balances are not exact: then a charge may not show in them.
        """
        reason = "No balance of this account was read before the request: nothing can be proven."
        if self._is_inexact:
            reason = "The balance is a fraction, or too large to be exact: nothing can be proven."
        with open_read_only(self._session.out) as db:
            rulings = [
                SubmissionResolution(record.submission_id, Event.GIVE_UP, reason)
                for record in submissions_in(db, {State.UNCERTAIN})
            ]
        document = unprovable_document(reading, rulings, reason)
        if rulings:
            await self._session.journal.write(apply_resolutions(reading, reading, document, rulings))
