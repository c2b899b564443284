"""Changes of the journal that concern a submission (one POST): its state, its credits and its rows.

A request's reserved credits, its charge and the sums over all requests always change together, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from lightmeter import sqlite
from lightmeter.errors import BudgetReached, InvalidTransition
from lightmeter.journal.frame_rows import IS_SENT, ROW_OF, SEND_ORDER
from lightmeter.journal.outcome import NOT_UPLOADED, AnswerOutcome, ReceivedAnswer, Refusal
from lightmeter.journal.queries.answer_retries import RetryRow
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.queries.submissions import last_submission_id
from lightmeter.journal.submission_states import HOLDING, Event, State, step


@sqlite.command
def put_meta(db: sqlite.Connection, values: Mapping[str, str]) -> None:
    """Write values (name → text) to the journal's table `meta`, which describes the run as a whole."""
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))


def get_meta(db: sqlite.Connection) -> dict[str, str]:
    """Return the values (name → text) of the journal's table `meta`, which describes the run as a whole."""
    return dict(db.execute("SELECT key, value FROM meta"))


def apply_event(db: sqlite.Connection, submission_id: int, event: Event, at: float, detail: str | None = None) -> None:
    """Apply an event to a submission (one POST): change its state, record the event, and update the reserved credits.

    Args:
        db: The journal, in a transaction.
        submission_id: The submission.
        event: What happened to the submission; it determines the new state.
        at: When this happened, in seconds since the epoch.
        detail: A sentence to store with the change of state; None for no sentence.

    Raises:
        InvalidTransition: the submission's state does not allow the event.
    """
    ((state, hold),) = db.execute("SELECT state, hold FROM submissions WHERE submission_id = ?", (submission_id,))
    before = State(state)
    after = step(before, event)
    db.execute("UPDATE submissions SET state = ? WHERE submission_id = ?", (after, submission_id))
    db.execute("INSERT INTO transitions VALUES (?, ?, ?, ?, ?)", (submission_id, event, after, at, detail))
    change = ((after in HOLDING) - (before in HOLDING)) * hold
    if change:
        db.execute("UPDATE money SET held = held + ?", (change,))


def last_transition_id(db: sqlite.Connection) -> int:
    """Return the id of the newest change of state of any submission; 0 before the first. Later ids are larger."""
    return int(db.execute("SELECT coalesce(max(rowid), 0) FROM transitions").get)


@dataclass(slots=True)
class _HoldAndSend:
    """The function for `Journal.write` that `hold_and_send` returns; its fields are the arguments described there.

    It reserves `hold` credits for a request, records the request as sent at `at` (seconds since the epoch), and returns
    the submission id. If the credits would exceed `budget`, it writes nothing and raises `BudgetReached`. `retry` says
    that the request repeats the user's question (`--ask`) because the first answer to it was invalid.
    """

    rows: Sequence[int]
    hold: int
    budget: int | None
    at: float
    retry: bool

    def __call__(self, db: sqlite.Connection) -> int:
        return self.apply_all(db, [self])[0]

    @staticmethod
    def apply_all(db: sqlite.Connection, holds: Sequence[_HoldAndSend]) -> list[int]:
        """Reserve the price of each request in `holds` and record it as sent; return the submission ids in order.

        If the prices together would exceed the budget, write nothing and raise `BudgetReached`.
        """
        held = step(State.PLANNED, Event.HOLD)
        sent = step(held, Event.SEND)
        total = sum(one.hold for one in holds)
        budget = min((one.budget for one in holds if one.budget is not None), default=None)
        db.execute("UPDATE money SET held = held + ?1 WHERE ?2 IS NULL OR paid + held + ?1 <= ?2", (total, budget))
        if not db.changes():
            paid, held_ = credit_totals(db)
            raise BudgetReached(
                f"{total} more credits could exceed the budget: {paid} paid, {held_} held, of {budget}."
            )
        numbered = list(enumerate(holds, 1 + last_submission_id(db)))
        db.executemany(
            "INSERT INTO submissions (submission_id, state, hold, assets, sent_at, attempts) VALUES (?, ?, ?, ?, ?, 1)",
            [(number, sent, one.hold, len(one.rows), one.at) for number, one in numbered],
        )
        db.executemany(
            "INSERT INTO transitions VALUES (?1, ?2, ?3, ?4, NULL), (?1, ?5, ?6, ?4, NULL)",
            [(number, Event.HOLD, held, one.at, Event.SEND, sent) for number, one in numbered],
        )
        db.executemany(
            "UPDATE items SET submission_id = ? WHERE seq = ?",
            [(number, seq) for number, one in numbered if not one.retry for seq in one.rows],
        )
        for number, seq in ((number, seq) for number, one in numbered if one.retry for seq in one.rows):
            _link_retry(db, number, seq)
        return [number for number, _ in numbered]


def _link_retry(db: sqlite.Connection, submission_id: int, seq: int) -> None:
    db.execute(
        "UPDATE answer_retries SET submission_id = ?, reason = NULL WHERE seq = ? AND submission_id IS NULL",
        (submission_id, seq),
    )
    if not db.changes():
        raise InvalidTransition(f"Row {seq} does not wait for a second request: each row gets at most one.")


def hold_and_send(
    rows: Sequence[int], hold: int, budget: int | None, at: float, *, retry: bool = False
) -> sqlite.Change[int]:
    """Return a function for `Journal.write` that reserves a request's price and records the request as sent.

    `Journal.write` then returns the submission id. If the credits paid and reserved would exceed the budget, it writes
    nothing and raises `BudgetReached`. If `retry` is true and a row waits for no retry, it raises `InvalidTransition`.

    Args:
        rows: Numbers of the manifest rows in the request.
        hold: The most that the request can cost, in whole credits.
        budget: The run's budget in credits; None without one.
        at: When the request is sent, in seconds since the epoch.
        retry: Whether the request repeats the user's question (`--ask`) because the first answer to it was invalid.
    """
    return _HoldAndSend(rows, hold, budget, at, retry)


@sqlite.command
def record_answer(db: sqlite.Connection, submission_id: int, received: ReceivedAnswer, event: Event) -> None:
    """Record that an answer came whose charge and results are not known yet.

    Args:
        db: The journal, in a transaction.
        submission_id: The submission (POST) that was answered.
        received: The answer, which `store_answer` has stored.
        event: `ANSWER` if the answer was the response to the POST, `COLLECT` if it was the response to a poll.
    """
    db.execute(
        "UPDATE submissions SET http_status = ?, answered_at = ?, polls = polls + ? WHERE submission_id = ?",
        (received.http_status, received.at, received.polls, submission_id),
    )
    apply_event(db, submission_id, event, received.at)


@sqlite.command
def acknowledge(db: sqlite.Connection, submission_id: int, request_id: str, at: float) -> None:
    """Record that the service accepted the request; its answer can be polled under `request_id`.

    `at` is the time when the service accepted the request, in seconds since the epoch.
    """
    db.execute(
        "UPDATE submissions SET request_id = ?, acked_at = ? WHERE submission_id = ?", (request_id, at, submission_id)
    )
    apply_event(db, submission_id, Event.ACKNOWLEDGE, at)


@sqlite.command
def poll_again(db: sqlite.Connection, submission_id: int, at: float) -> None:
    """Record at the time `at`, in seconds since the epoch, that an accepted request in doubt is polled for again."""
    apply_event(db, submission_id, Event.ACKNOWLEDGE, at, "polled again")
    mark_rows(db, submission_id, "pending", None, None)


@sqlite.command
def settle(
    db: sqlite.Connection, submission_id: int, outcome: AnswerOutcome, at: float, note: str | None = None
) -> None:
    """Record the charge of an answered request and the result of each of its rows; free the credits reserved for it.

    Args:
        db: The journal, in a transaction.
        submission_id: The submission (POST); its answer must be in the journal already.
        outcome: The charge and the rows' results.
        at: When the charge is recorded, in seconds since the epoch.
        note: What was unexpected about the charge, to be stored with the change of state; None if nothing was.
    """
    db.execute(
        "UPDATE submissions SET paid = ?, remaining = ?, said = ?, request_id = coalesce(?, request_id) "
        "WHERE submission_id = ?",
        (outcome.known_paid, outcome.remaining, outcome.charge_evidence, outcome.request_id, submission_id),
    )
    db.execute("UPDATE money SET paid = paid + ?", (outcome.known_paid or 0,))
    apply_event(db, submission_id, outcome.event, at, note)
    write_row_results(db, [outcome])


def write_row_results(db: sqlite.Connection, outcomes: Iterable[AnswerOutcome]) -> None:
    """Set each row in `outcomes` to `ok` if the answer has an asset (image or video) for it, otherwise to `failed`.

    Also store the position and the name of the row's asset in the answer.
    """
    db.executemany(
        "UPDATE items SET status = ?, reason = ?, error = ?, asset = ?, name = ? WHERE seq = ?",
        [
            ("ok", None, None, row.asset, row.name, row.seq)
            if row.error is None
            else ("failed", outcome.reason, row.error, row.asset, row.name, row.seq)
            for outcome in outcomes
            for row in outcome.rows
        ],
    )


@sqlite.command
def record_refusal(db: sqlite.Connection, submission_id: int, refusal: Refusal, at: float) -> None:
    """Record a refused request, which cost nothing; `at` is the present time, in seconds since the epoch.

    If the rows did not cause the refusal (`refusal.rows_retryable`), they become pending again; otherwise they fail.
    """
    db.execute(
        "UPDATE submissions SET error = ?, answered_at = ?, paid = 0 WHERE submission_id = ?",
        (refusal.error, at, submission_id),
    )
    apply_event(db, submission_id, Event.REFUSE, at, refusal.error)
    apply_event(db, submission_id, Event.VOID, at)
    if refusal.rows_retryable:
        requeue_rows(db, submission_id)
    else:
        mark_rows(db, submission_id, "failed", refusal.reason, refusal.error)


def requeue_rows(db: sqlite.Connection, submission_id: int) -> None:
    """Make the rows of a submission (one POST) pending again, or skipped if the manifest no longer has them.

    A submission that only repeated the user's question (`--ask`) is different: its row keeps its status and waits for
    another request. After the call, `db.changes()` is the number of rows whose status changed.
    """
    db.execute("UPDATE answer_retries SET submission_id = NULL WHERE submission_id = ?", (submission_id,))
    db.execute(
        "UPDATE items SET submission_id = NULL, error = NULL, "
        "status = iif(seq IN (SELECT seq FROM gone), 'skipped', 'pending'), "
        "reason = iif(seq IN (SELECT seq FROM gone), 'gone', NULL) WHERE submission_id = ?",
        (submission_id,),
    )


@sqlite.command
def requeue_lost_rows(db: sqlite.Connection, seqs: Sequence[int]) -> None:
    """Make the rows with the numbers `seqs` pending again: an earlier run paid for them, but got no answer."""
    query = "UPDATE items SET status = 'pending', reason = NULL, error = NULL WHERE seq = ?"
    db.executemany(query, [(seq,) for seq in seqs])


def mark_rows(db: sqlite.Connection, submission_id: int, status: str, reason: str | None, error: str | None) -> None:
    """Set the status of all rows of a submission (one POST); `reason` (a code) and `error` (a sentence) say why."""
    db.execute(
        "UPDATE items SET status = ?, reason = ?, error = ? WHERE submission_id = ?",
        (status, reason, error, submission_id),
    )


@sqlite.command
def fail_row(db: sqlite.Connection, seq: int, reason: str, error: str) -> None:
    """Mark row number `seq`, which cannot be sent, as failed; `reason` (a code) and `error` (a sentence) say why."""
    db.execute("UPDATE items SET status = 'failed', reason = ?, error = ? WHERE seq = ?", (reason, error, seq))


@sqlite.command
def revert_to_planned(db: sqlite.Connection, submission_id: int, event: Event, why: str, at: float) -> None:
    """Free the credits of a submission that the service never processed; its rows become pending again.

    Args:
        db: The journal, in a transaction.
        submission_id: The submission.
        event: `UNREACHED` (no connection) or `THROTTLE` (too many requests).
        why: What happened, as a sentence.
        at: When it happened, in seconds since the epoch.
    """
    _apply_event_with_error(db, submission_id, event, at, why)
    requeue_rows(db, submission_id)


def _apply_event_with_error(db: sqlite.Connection, submission_id: int, event: Event, at: float, error: str) -> None:
    apply_event(db, submission_id, event, at, error)
    db.execute("UPDATE submissions SET error = ? WHERE submission_id = ?", (error, submission_id))


@sqlite.command
def mark_uncertain(db: sqlite.Connection, submission_id: int, why: str, at: float) -> None:
    """Record that a request got no usable answer. It may have been charged, so its credits stay reserved.

    Args:
        db: The journal, in a transaction.
        submission_id: The submission; its rows get the status `in_doubt`.
        why: What happened, as a sentence.
        at: When it happened, in seconds since the epoch.
    """
    _apply_event_with_error(db, submission_id, Event.LOSE, at, why)
    mark_rows(db, submission_id, "in_doubt", "no_answer", why)


@sqlite.command
def resend(db: sqlite.Connection, submission_id: int, at: float) -> None:
    """Record that an unanswered request is sent again under the same idempotency key, so that it is charged only once.

    The credits reserved for the request stay reserved. `at` is the time of sending, in seconds since the epoch.
    """
    apply_event(db, submission_id, Event.ASK_AGAIN, at, "same idempotency key")
    db.execute(
        "UPDATE submissions SET attempts = attempts + 1, sent_at = ?, error = NULL WHERE submission_id = ?",
        (at, submission_id),
    )
    mark_rows(db, submission_id, "pending", None, None)


@sqlite.command
def mark_over_budget(db: sqlite.Connection, reason: str, first: int, last: int) -> int:
    """Mark pending rows as over budget, and return the number of manifest rows that were affected.

    These are the rows in places `first` to `last` (included) of the send order. All frames that are sent in place of
    one video count as one row. `reason` is the code of the limit that was reached, such as `no_credits`.
    """
    selected = f"status = 'pending' AND submission_id IS NULL AND {SEND_ORDER} BETWEEN ? AND ? AND {IS_SENT}"
    count = f"SELECT count(DISTINCT {ROW_OF.format('seq')}) FROM items WHERE {selected}"  # noqa: S608 (our own words)
    rows = int(db.execute(count, (first, last)).get)
    db.execute(f"UPDATE items SET status = 'over_budget', reason = ? WHERE {selected}", (reason, first, last))  # noqa: S608
    return rows


@sqlite.command
def mark_row_over_budget(db: sqlite.Connection, reason: str, seq: int) -> None:
    """Mark the pending row or video frame `seq` as over budget; `reason` is a code for the limit, such as `at_risk`."""
    db.execute(
        "UPDATE items SET status = 'over_budget', reason = ? "
        "WHERE status = 'pending' AND submission_id IS NULL AND seq = ?",
        (reason, seq),
    )


@sqlite.command
def requeue_unsent_rows(db: sqlite.Connection, first: int, last: int) -> None:
    """Make rows pending again that are over budget or `NOT_UPLOADED`, in places `first` to `last` of the send order."""
    db.execute(
        "UPDATE items SET status = 'pending', reason = NULL, error = NULL WHERE status IN ('over_budget', 'failed') "  # noqa: S608
        f"AND (status = 'over_budget' OR reason = ?) AND {SEND_ORDER} BETWEEN ? AND ? AND {IS_SENT}",
        (NOT_UPLOADED, first, last),
    )


@sqlite.command
def add_retries(db: sqlite.Connection, rows: Sequence[RetryRow]) -> None:
    """Record that the user's question (`--ask`) is to be asked again about `rows`. Rows recorded before are ignored."""
    db.executemany(
        "INSERT INTO answer_retries (seq, error, backends) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(row.seq, row.retry.error, orjson.dumps(row.retry.backends).decode()) for row in rows],
    )


@sqlite.command
def set_retry_obstacle(db: sqlite.Connection, reason: str | None, first: int, last: int) -> None:
    """Record, or delete, the reason why rows that wait for a second answer to `--ask` cannot be sent.

    The rows are those in places `first` to `last` (included) of the send order. A code such as `budget` is stored for
    rows that have no reason yet. None deletes the reasons of these rows, because they can be sent.
    """
    db.execute(
        "UPDATE answer_retries SET reason = ?1 "  # noqa: S608 (a constant expression)
        "WHERE submission_id IS NULL AND (reason IS NULL OR ?1 IS NULL) AND "
        f"(SELECT {SEND_ORDER} FROM items WHERE items.seq = answer_retries.seq) BETWEEN ?2 AND ?3",
        (reason, first, last),
    )


@sqlite.command
def set_row_retry_obstacle(db: sqlite.Connection, reason: str, seq: int) -> None:
    """Record why the row or video frame `seq`, which waits for a second answer to `--ask`, cannot be sent.

    `reason` is a code such as `budget`. If a reason is stored already, it is kept.
    """
    db.execute(
        "UPDATE answer_retries SET reason = ? WHERE submission_id IS NULL AND reason IS NULL AND seq = ?", (reason, seq)
    )
