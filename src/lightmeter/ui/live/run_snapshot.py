"""`SnapshotReader`: what the live page shows of a run, read from the run's journal alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, Final

from lightmeter.api.next_steps import next_steps
from lightmeter.errors import LightmeterError
from lightmeter.html_fragments import counted
from lightmeter.journal.commands.submissions import get_meta, last_transition_id
from lightmeter.journal.files import is_run_locked, journal_path
from lightmeter.journal.header import RunHeader, read_run_header
from lightmeter.journal.queries import live
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.queries.items import count_by_status
from lightmeter.journal.queries.submissions import InDoubtTotals, in_doubt_totals, waiting_at_service
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submission_states import HOLDING, IN_DOUBT, State
from lightmeter.sqlite import Connection
from lightmeter.tables.dataset import Dataset
from lightmeter.ui.live.run_history import NO_RATES, RECENT_S, RecentRates, RunHistory
from lightmeter.wire.constants import RESULT_LIFETIME_S

Snapshot = dict[str, Any]
"""What the live page shows, as JSON-compatible objects; README, "Look at a run in the browser", lists the keys."""

MAX_REASONS: Final = 20
"""A snapshot lists at most this number of reasons for problems."""

MAX_DEADLINES: Final = 20
"""A snapshot lists at most this number of requests that still wait for their answers."""

QUICK_ROWS: Final = 20_000
"""A run with more rows shows its next steps one snapshot later than the rest, because finding them can take seconds."""

COST_FACTOR: Final = 50
"""Limits the time spent on scans of all rows: after a scan of t seconds, no scan is due for `COST_FACTOR` t seconds."""

REPORT_NAME: Final = "report.html"

_IN_FLIGHT: Final = HOLDING - IN_DOUBT - {State.CHARGE_UNKNOWN, State.WRITTEN_OFF}


@dataclass(slots=True)
class _RowSums:
    """Values for the live page that need a scan of all rows.

    A scan takes 0.2 s for a million rows, so that these values are read less often than the others.

    Attributes:
        header: The values that describe the run as a whole.
        counts: Status → number of rows.
        reasons: A dict with the fields of `ProblemReason` for each reason, most frequent first.
        learned_limit: The rate limit that the run has learned, as `AdaptiveLimiter.state` returns it; empty if unknown.
        tables: Names of the tables that have files.
        read_at_s: When the values were read, in seconds of the monotonic clock.
        cost_s: Duration of the scan in seconds.
    """

    header: RunHeader
    counts: dict[str, int]
    reasons: list[dict[str, Any]]
    learned_limit: Mapping[str, float]
    tables: list[str]
    read_at_s: float
    cost_s: float

    @property
    def due_at_s(self) -> float:
        return self.read_at_s + COST_FACTOR * self.cost_s


@dataclass(slots=True)
class _Requests:
    """Values for the live page about the requests and credits of a run, which are quick to read from the journal.

    Attributes:
        started_at: Time of the first change of any request's state, in seconds since the epoch; None without a change.
        last_at: Time of the latest change of any request's state, in seconds since the epoch; None without a change.
        paid: Credits that the run has paid.
        held: Credits reserved for requests whose charge is not known.
        open: Numbers of the requests for which credits are reserved, by state; without the state `written_off`.
        doubt: Totals of the requests whose answer or charge is missing.
        waiting: Number of requests that the service has accepted and not answered.
        deadlines: The first `MAX_DEADLINES` of these requests, oldest first.
    """

    started_at: float | None = None
    last_at: float | None = None
    paid: int = 0
    held: int = 0
    open: list[live.OpenRequests] = field(default_factory=list)
    doubt: InDoubtTotals = field(default_factory=lambda: InDoubtTotals(0, 0, 0, 0, 0, 0))
    waiting: int = 0
    deadlines: list[live.WaitingAnswer] = field(default_factory=list)

    def rows_in(self, *states: State) -> int:
        return sum(each.rows for each in self.open if each.state in states)

    def count_in(self, *states: State) -> int:
        return sum(each.requests for each in self.open if each.state in states)


class SnapshotReader:
    """Reads a snapshot, which is what the live page shows of a run, whenever the method `read` is called.

    The journal is read only if it has changed. It is closed after each reading, so that a new run can replace it.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Create the reader for the run in `folder`. `clock` must return the time in seconds since the epoch."""
        self._folder = folder
        self._clock = clock
        self._history = RunHistory()
        self._transition_id = 0
        self._run_id = ""
        self._sums: _RowSums | None = None
        self._requests = _Requests()
        self._seen: object = None
        self._was_locked = False
        self._is_behind = False  # the journal changed since its rows were counted
        self._steps: list[str] | None = None

    def read(self) -> Snapshot:
        """Return what the live page shows of the run now: the object that the README describes for `GET /events`.

        If the run cannot be read, return a dict with only the key `error`. Its value has `message` and `hint`.
        """
        try:
            return self._read()
        except (LightmeterError, OSError) as error:
            self._seen = None
            return {"error": {"message": str(error), "hint": getattr(error, "hint", "")}}

    def _read(self) -> Snapshot:
        now_s, locked, files = time.monotonic(), is_run_locked(self._folder), _file_versions(self._folder)
        seen = (files, locked)
        is_due = self._sums is None or now_s >= self._sums.due_at_s
        if seen != self._seen or (is_due and self._is_behind):
            self._read_journal(read_rows=is_due or locked != self._was_locked)
            self._steps = None
            is_quick = self._sums is not None and sum(self._sums.counts.values()) <= QUICK_ROWS
        else:
            is_quick = True  # the rest is shown
        if self._steps is None and is_quick and not locked:
            self._steps = next_steps(self._folder)
        self._seen, self._was_locked = seen, locked
        if self._sums is None:
            raise RuntimeError("The rows were not counted.")
        return self._compose(self._sums, locked=locked)

    def _read_journal(self, *, read_rows: bool) -> None:
        with open_read_only(self._folder) as db, db:  # (one transaction, so that all parts fit together)
            meta = get_meta(db)
            if meta.get("run_id") != self._run_id or last_transition_id(db) < self._transition_id:
                self._run_id, self._sums = meta.get("run_id", ""), None
                self._start_history(db)
            else:
                self._history.add(live.activity_since(db, self._transition_id))
            self._transition_id = last_transition_id(db)
            self._requests = _read_requests(db)
            self._is_behind = not (read_rows or self._sums is None)
            if not self._is_behind:
                self._sums = _read_rows(db, self._folder, meta)

    def _start_history(self, db: Connection) -> None:
        times = live.transition_times(db)
        first, last = times or (0.0, 0.0)
        interval_s = max(1, int((last - first) / 120))
        self._history = RunHistory(live.charges_by_interval(db, interval_s), interval_s)
        self._history.set_recent(
            live.activity_since(db, live.last_transition_before(db, self._clock() - RECENT_S)),
        )

    def _compose(self, sums: _RowSums, *, locked: bool) -> Snapshot:
        requests, counts = self._requests, sums.counts
        unsent = max(0, counts["pending"] - requests.rows_in(*_IN_FLIGHT))
        rates = self._history.recent_rates(self._clock(), requests.started_at) if locked else NO_RATES
        budget = sums.header.options.budget
        left = None if budget is None else max(0, budget - requests.paid)
        eta = rates.seconds_for(counts["pending"], left) if locked and counts["pending"] else None
        state = _state(sums, requests, locked=locked)
        return {
            "folder": str(self._folder),
            "run_id": self._run_id,
            "manifest": sums.header.manifest,
            "planned_at": sums.header.planned_at,
            "started_at": requests.started_at,
            "last_at": requests.last_at,
            "state": state,
            "phase": _phase(requests, unsent=unsent or counts["over_budget"], state=state),
            "message": _message(self._folder, sums, requests, state),
            "next_steps": [] if locked else self._steps or [],
            "notes": list(sums.header.notes),
            "rows": {"total": sum(counts.values()), "counts": counts},
            "credits": _credits(sums.header, requests),
            "requests": {"sent": self._history.sent, "open": [each._asdict() for each in requests.open]},
            "rates": _rates_json(rates, sums.learned_limit),
            "eta_s": eta and [None if bound is None else round(bound) for bound in eta],
            "history": {"interval_s": self._history.interval_s, "points": self._history.points()},
            "reasons": sums.reasons,
            "doubt": asdict(requests.doubt),
            "waiting": _waiting(requests),
            "tables": sums.tables,
            "report": (self._folder / REPORT_NAME).is_file(),
        }


def _rates_json(rates: RecentRates, learned_limit: Mapping[str, float]) -> Snapshot:
    return {
        "seconds": round(rates.seconds, 3),
        "sent": round(rates.sent, 3),
        "throttled": round(rates.throttled, 3),
        "rows": round(rates.rows, 3),
        "answered": rates.charged_requests,
        "learned": dict(learned_limit),
    }


def _credits(header: RunHeader, requests: _Requests) -> Snapshot:
    return {
        "paid": requests.paid,
        "held": requests.held,
        "budget": header.options.budget,
        "balance_before": header.balance_before,
        "balance_after": header.balance_after,
    }


def _waiting(requests: _Requests) -> Snapshot:
    first = [
        {"request_id": each.request_id, "rows": each.rows, "until": each.acked_at + RESULT_LIFETIME_S}
        for each in requests.deadlines
    ]
    return {"requests": requests.waiting, "first": first}


def _file_versions(folder: Path) -> tuple[object, ...]:
    """Return a value that differs after anything wrote to the journal, report or tables of the run in `folder`.

    It consists of the files' inode numbers, times of change and sizes.
    """
    path = journal_path(folder)
    versions: list[object] = []
    for file in (path, path.with_name(f"{path.name}-wal"), folder / REPORT_NAME, folder / "tables"):
        try:
            found = file.stat()
        except FileNotFoundError:
            versions.append(None)
        else:
            versions.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(versions)


def _read_requests(db: Connection) -> _Requests:
    first, last = live.transition_times(db) or (None, None)
    paid, held = credit_totals(db)
    waiting, _ = waiting_at_service(db)
    return _Requests(
        first,
        last,
        paid,
        held,
        live.open_requests(db, HOLDING - {State.WRITTEN_OFF}),
        in_doubt_totals(db),
        waiting,
        live.waiting_answers(db, MAX_DEADLINES),
    )


def _read_rows(db: Connection, folder: Path, meta: Mapping[str, str]) -> _RowSums:
    started_s = time.monotonic()
    header, counts = read_run_header(folder), count_by_status(db)
    reasons = [each._asdict() for each in live.problem_reasons(db, MAX_REASONS)]
    learned_limit = json.loads(meta.get("pace", "{}")).get("state", {})
    tables = [table for table in Dataset(folder).tables() if Dataset(folder).parts(table)]
    now_s = time.monotonic()
    return _RowSums(header, counts, reasons, learned_limit, tables, now_s, now_s - started_s)


def _state(sums: _RowSums, requests: _Requests, *, locked: bool) -> str:
    if locked:
        return "running"
    if sums.header.checked_only:
        return "checked"
    if sums.counts["pending"] or requests.count_in(*_IN_FLIGHT):
        return "stopped" if requests.started_at is not None else "planned"
    return "stopped" if sums.counts["over_budget"] else "finished"


def _phase(requests: _Requests, *, unsent: int, state: str) -> str:
    if state in {"checked", "planned"}:
        return "checked"
    if state == "finished":
        return "done"
    if unsent:
        return "sending"
    if requests.count_in(*_IN_FLIGHT):
        return "collecting"
    return "reconciling" if requests.count_in(State.UNCERTAIN) else "tables"


def _message(folder: Path, sums: _RowSums, requests: _Requests, state: str) -> str:
    resume = f"lightmeter resume {quote(str(folder))}"
    if state == "planned":
        return f"Nothing was sent yet, and no process holds this run; start it with: {resume}"
    if state != "stopped":
        return ""
    if not sums.counts["pending"] and not requests.count_in(*_IN_FLIGHT):
        over = counted(sums.counts["over_budget"], "row over budget was", "rows over budget were")
        return f"A limit on credits was reached: {over} not sent."
    lost = requests.count_in(State.HELD, State.SENT)
    killed = f" It was ended with {lost} requests in flight." if lost else ""
    last = datetime.fromtimestamp(requests.last_at or 0, UTC)
    return f"No process holds this run since {last:%Y-%m-%d %H:%M} UTC.{killed} Resume with: {resume}"
