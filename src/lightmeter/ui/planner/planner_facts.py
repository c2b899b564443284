"""Converts a plan, the progress of a run and its outcome to JSON-compatible objects for the planner's page."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Any, Final

from lightmeter.api.run_result import Run, RunSummary
from lightmeter.errors import Interrupted, LightmeterError
from lightmeter.html_report.model import short_name
from lightmeter.journal.files import journal_path
from lightmeter.journal.queries.charges import PaidFrames, paid_frames
from lightmeter.journal.queries.frame_counts import UNSENT, frames_to_send
from lightmeter.journal.queries.submissions import waiting_at_service
from lightmeter.journal.store import open_read_only
from lightmeter.planning.plan import Plan
from lightmeter.planning.plan_text import ReasonCount
from lightmeter.planning.progress import Progress
from lightmeter.pricing.estimate import CreditRange, FrameRange
from lightmeter.ui.planner.plan_source import SpendLimit
from lightmeter.ui.planner.what_if import range_json
from lightmeter.ui.view_model import error_text
from lightmeter.wire.constants import RESULT_LIFETIME_S

MAX_REASONS: Final = 12

_WORDS: Final = {"pending": "to send", "ok": "answered by earlier runs"}


class PlannerState(StrEnum):
    """What the planner is doing.

    `idle`: nothing. `planning`: it reads, checks and prices the manifest, also just before a run. `running`: it runs a
    plan. `stopping`: planning or the run was asked to stop, but has not ended yet.
    """

    IDLE = "idle"
    PLANNING = "planning"
    RUNNING = "running"
    STOPPING = "stopping"


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return what the page shows of a plan: numbers of rows by status, and why rows would not be sent.

    The keys are

    - `manifest`, `name` (its file name) and `rows` (number of all rows);
    - `counts`: a dict with `status`, `words` (text for the user) and `rows` for each status that rows have;
    - `note`: why the balance of the account is unknown; empty if it is known;
    - `reasons`: at most `MAX_REASONS` dicts with `status`, `reason`, `rows` and `example` (URL and error of one row);
    - `more_reasons`: the number of further reasons.
    """
    counts = [
        {"status": status, "words": _WORDS.get(status, _words(status)), "rows": rows}
        for status, rows in plan.counts.items()
        if rows
    ]
    return {
        "manifest": plan.manifest,
        "name": short_name(plan.manifest),
        "rows": plan.rows,
        "counts": counts,
        "note": plan.service.note or "",
        **_reasons(plan.reasons),
    }


def offer_json(plan: Plan, limit: SpendLimit | None, balance: int | None, command: str | None) -> dict[str, Any]:
    """Return what the page offers the user after planning: the price, the spend limit on the button, and the command.

    The keys are `credits` (the limit, or None), `continues` (whether the run would be continued, not started), `price`
    (from `range_json`), `budget` (of the plan's options), `free` (whether the run costs nothing), `balance` and
    `command`.

    Args:
        plan: The plan.
        limit: The maximum number of credits that a run of the plan may spend; None if there is no maximum.
        balance: The credits of the account; None if they are not known.
        command: The shell command that runs the plan; None if no command can run it.
    """
    return {
        "credits": None if limit is None else limit.credits,
        "continues": limit is not None and limit.continues_run,
        "price": range_json(plan.credits, is_estimate=False),
        "budget": plan.options.budget,
        "free": plan.is_free,
        "balance": balance,
        "command": command,
    }


def progress_json(progress: Progress) -> dict[str, Any]:
    """Return the progress of planning or of a run as a JSON-compatible object for the page.

    The keys `phase`, `rows`, `rate`, `paid`, `held`, `budget`, `in_flight`, `waiting` and `notes` have the values of
    these attributes of `progress`; `waiting` is empty instead of None. `finished`, `in_doubt` and `failed` are numbers
    of rows. `fraction` is the fraction of rows that are finished.
    """
    return {
        "phase": progress.phase,
        "rows": progress.rows,
        "finished": progress.finished if progress.counts else 0,
        "fraction": finished_fraction(progress),
        "rate": progress.rate,
        "paid": progress.paid,
        "held": progress.held,
        "budget": progress.budget,
        "in_flight": progress.in_flight,
        "in_doubt": progress.counts.get("in_doubt", 0),
        "failed": progress.counts.get("failed", 0),
        "waiting": progress.waiting or "",
        "notes": list(progress.notes),
    }


def finished_fraction(progress: Progress) -> float:
    """Return the fraction of rows that are finished, 0 to 1. It is 0 during planning."""
    return progress.finished / progress.rows if progress.phase != "planning" and progress.rows else 0.0


def waiting_json(out: Path) -> dict[str, Any] | None:
    """Return how many accepted requests wait for their answers, and when the first of these answers expires.

    The keys are `requests` and `expires_at` (in seconds since the epoch). Return None if no request waits for its
    answer, or if the folder `out` has no journal yet.
    """
    if not journal_path(out).exists():
        return None
    with open_read_only(out) as db:
        requests, oldest = waiting_at_service(db)
    if not requests or oldest is None:
        return None
    return {"requests": requests, "expires_at": oldest + RESULT_LIFETIME_S}


def outcome_json(run: Run) -> dict[str, Any]:
    """Return how a run ended, for the page: a message, credits, tables, reasons for problems, price of unsent rows.

    The keys are those of `summary_json`, `reasons` and `more_reasons` as in `plan_json`, and `remaining`, from
    `remaining_json`.

    Raises:
        JournalError: The folder of the run is gone.
    """
    with open_read_only(run.folder) as db:
        observed, (unsent, _) = paid_frames(db), frames_to_send(db, UNSENT)
    return {
        **summary_json(run.summary(), run.stopped_by),
        **_reasons(run.reasons()),
        "remaining": remaining_json(run.summary(), observed, unsent),
    }


def summary_json(summary: RunSummary, stopped_by: LightmeterError | None) -> dict[str, Any]:
    """Return how a run ended, for the page: a message, a hint, credits and the folder of the tables.

    The keys are `mood` (`good` if the run was not stopped and no row failed or is in doubt, else empty), `message`,
    `hint` (empty unless the run was stopped), `paid`, `held`, `budget` and `balance` (credits), `requests` (their
    number), `seconds` (duration of the run), `in_doubt` (number of rows) and `tables` (path).

    Args:
        summary: Rows by status, credits, number of requests and duration of the run.
        stopped_by: The error that ended the run early, or None.
    """
    counts = ", ".join(f"{rows:,} {_words(status)}" for status, rows in summary.counts.items() if rows)
    is_clean = not any(summary.counts.get(status) for status in ("failed", "in_doubt"))
    first = "raise the budget, then " if summary.counts.get("over_budget") else ""
    return {
        "mood": "" if stopped_by is not None or not is_clean else "good",
        "message": f"Done: {counts or 'no rows'}." if stopped_by is None else f"{stopped_by} {counts}.",
        "hint": "" if stopped_by is None else f"Nothing is lost: {first}plan, and spend again, to continue from here.",
        "paid": summary.paid,
        "held": summary.held,
        "budget": summary.budget,
        "balance": summary.balance_after,
        "requests": summary.requests,
        "seconds": summary.seconds,
        "in_doubt": summary.counts.get("in_doubt", 0),
        "tables": str(summary.out / "tables"),
    }


def remaining_json(summary: RunSummary, observed: PaidFrames, unsent: FrameRange) -> dict[str, Any] | None:
    """Estimate what the unsent rows of a run would cost, from the credits that the run has paid per image so far.

    The keys are `rows` (number of unsent rows), `each` (credits per image or frame) and `credits` (from `range_json`).
    Return None if there are no unsent rows, or if the price per image is not known.

    Args:
        summary: The rows of the run by status.
        observed: The credits paid, and the number of images and video frames paid for.
        unsent: The number of images and video frames that were not sent.
    """
    rows = summary.counts.get("pending", 0) + summary.counts.get("over_budget", 0)
    if not rows or not observed.paid or not observed.frames_low or observed.unbounded:
        return None
    low = ceil(unsent.low * observed.paid / observed.frames_high)
    high = None if unsent.high is None else max(low, ceil(unsent.high * observed.paid / observed.frames_low))
    each = observed.paid / observed.frames_high
    return {"rows": rows, "each": each, "credits": range_json(CreditRange(low, high), is_estimate=True)}


def error_json(error: BaseException) -> dict[str, Any]:
    """Return an error for the page: `mood` (its style), `message`, and `hint` (empty if the error has no hint)."""
    mood = "" if isinstance(error, Interrupted) else "error"
    return {"mood": mood, "message": error_text(error), "hint": getattr(error, "hint", "") or ""}


def _reasons(reasons: Sequence[ReasonCount]) -> dict[str, Any]:
    rows = [
        {"status": _words(each.status), "rows": each.rows, "reason": _words(each.reason), "example": each.example}
        for each in reasons[:MAX_REASONS]
    ]
    return {"reasons": rows, "more_reasons": max(0, len(reasons) - MAX_REASONS)}


def _words(name: str) -> str:
    return name.replace("_", " ")
