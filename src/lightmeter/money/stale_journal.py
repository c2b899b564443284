"""Detect, before anything is spent, a journal that is older than its run or a copy of it.

Such a journal does not know all that was paid. A run from it would pay for the same rows again, and would use the same
idempotency keys for other rows. Two sources outside the folder reveal it: the watermark that this machine keeps, which
is exact, or else the balance of the account. A user who continues such a journal gives the run a new id.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from lightmeter import sqlite
from lightmeter.clock import Clock
from lightmeter.errors import JournalConflict, JournalError
from lightmeter.journal.balance_proofs import opening_reading
from lightmeter.journal.charges import spent_since
from lightmeter.journal.commands import get_meta, put_meta
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import FORMER_RUNS, fresh_run_id
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.watermark import (
    JournalPosition,
    Watermark,
    WatermarkRecord,
    read_position,
    watermark_path,
    write_off,
)

__all__ = ["JournalCheck", "balance_gap", "judge_balance_gap", "track_watermark"]

JournalCheck = Literal["latest", "accepted", "unknown"]
"""State of a journal: the latest of its run; accepted by the user, whatever it is; not known."""

_log: Final = logging.getLogger(__name__)


@contextmanager
def track_watermark(journal: Journal, state_dir: Path, clock: Clock, *, accept: bool) -> Iterator[JournalCheck]:
    """Check the journal against its watermark, and advance the watermark with each commit until the block ends.

    Args:
        journal: Open for writing.
        state_dir: Where this machine keeps watermarks. If one cannot be written, that is logged and nothing is known.
        clock: Time.
        accept: Continue a journal that is older than its run, a copy, or unknown, under a new run id.

    Raises:
        JournalConflict: the journal is older than its run, or a copy, and `accept` is not set; nothing was changed.
    """
    folder = journal.folder
    with open_read_only(folder) as db:
        run_id, now = get_meta(db)["run_id"], read_position(db)
        is_new = now.steps == 0 and opening_reading(db) is None
    mark = _open(state_dir, run_id)
    known = None if mark is None else mark.known
    check: JournalCheck = "latest" if (is_new if known is None else known.checked) else "unknown"
    succeeded = False
    try:
        conflict = None if known is None else _conflict(known, folder, run_id, now)
        if conflict is not None and not accept:
            raise conflict
        if accept and (conflict is not None or check == "unknown"):
            if mark is not None:
                mark.close()
            lost = known.position if known is not None and not _is_copy(known, folder, run_id) else now
            run_id, now = _under_new_id(journal, run_id, now, lost, clock)
            mark, check = _open(state_dir, run_id), "accepted"
        if mark is not None:
            _begin(mark, run_id, folder, now, check)
            journal.after_commit = mark.advance
        yield check
        succeeded = True
    finally:
        journal.after_commit = None
        if mark is not None:
            mark.close(checked=succeeded)


def _open(state_dir: Path, run_id: str) -> Watermark | None:
    path = watermark_path(state_dir, run_id)
    try:
        return Watermark(path)
    except OSError as error:
        _log.warning(
            "%s cannot be written: %s. If the journal is replaced by an older one, that will not be noticed.",
            path,
            error,
        )
        return None


def _begin(mark: Watermark, run_id: str, folder: Path, now: JournalPosition, check: JournalCheck) -> None:
    try:
        mark.begin(run_id, folder, now, checked=check != "unknown")
    except OSError as error:
        _log.warning("The watermark of run %s cannot be written: %s.", run_id, error)
        mark.close()


def _conflict(known: WatermarkRecord, folder: Path, run_id: str, now: JournalPosition) -> JournalConflict | None:
    """Return the error for a journal that is not the latest state of its run; None if it is."""
    again = f"lightmeter resume {folder} --accept-journal"
    if _is_copy(known, folder, run_id):
        return JournalConflict(
            f"{folder} is a copy of the run in {known.folder}: both would pay for the same rows.",
            hint=f"Go on there, or make the copy a run of its own, which pays again for what both have to do: {again}",
        )
    if now.steps >= known.position.steps:
        return None
    before = known.position
    return JournalConflict(
        f"The journal in {folder} is older than its run: it knows {now.requests} of {before.requests} requests, "
        f"{now.steps} of {before.steps} steps and {now.credits} of {before.credits} credits. Was it restored from a "
        "backup, or did it lose its log?",
        hint=f"Put the newer journal back. Or go on with this one, which pays again for what it does not know: {again}",
    )


def _is_copy(known: WatermarkRecord, folder: Path, run_id: str) -> bool:
    """Whether the run is also in the folder where it was last. A folder that was moved is no copy."""
    last, here = journal_path(known.folder), journal_path(folder)
    try:
        if not last.exists() or last.samefile(here):
            return False
        with open_read_only(known.folder) as db:
            return get_meta(db).get("run_id") == run_id
    except (OSError, JournalError):
        return False


def _under_new_id(
    journal: Journal, former: str, now: JournalPosition, lost: JournalPosition, clock: Clock
) -> tuple[str, JournalPosition]:
    """Give the run a new id, and hold the credits that it spent beyond those in its journal."""
    run_id, at = fresh_run_id(clock), clock.now()

    def change(db: sqlite.Connection) -> JournalPosition:
        ids = [*json.loads(get_meta(db).get(FORMER_RUNS, "[]")), [former, now.requests]]
        put_meta({"run_id": run_id, FORMER_RUNS: json.dumps(ids)})(db)
        if lost.credits > now.credits:
            why = f"Spent by run {former}, but missing from this journal, which is older."
            write_off(lost.credits - now.credits, max(0, lost.requests - now.requests), why, at)(db)
        return read_position(db)

    return run_id, journal.submit(change).result()


def balance_gap(db: sqlite.Connection, balance: int) -> int:
    """Return the fewest credits that are missing from the account beyond those that the journal explains; 0 if none.

    Counted from the last balance that was read while no request was open. Each request since then may have cost its
    hold.
    """
    opening = opening_reading(db)
    if opening is None:
        return 0
    return max(0, opening.balance - spent_since(db, opening.place) - balance)


async def judge_balance_gap(journal: Journal, check: JournalCheck, gap: int, at: float, *, sole_spender: bool) -> int:
    """Handle a balance that, at the start of a run, is lower than the journal explains.

    If others may spend from the account, the gap is only logged. If nobody else spends, the journal must be older than
    its run or a copy, unless the watermark proves that it is not.

    Args:
        journal: Open for writing.
        check: What the watermark says of it.
        gap: As from `balance_gap`.
        at: Seconds since the epoch.
        sole_spender: Nobody else spends from the account.

    Returns:
        Credits that are held for the gap from now on.

    Raises:
        JournalConflict: nobody else spends, and the journal was not accepted; nothing was sent.
    """
    if gap == 0 or check == "latest":
        return 0
    text = f"The balance is {gap} credits lower than the journal in {journal.folder} explains."
    if check == "accepted" and sole_spender:
        await journal.write(write_off(gap, 0, text, at))
        return gap
    if not sole_spender:
        _log.warning("%s If the folder is a copy, or was restored from a backup, stop: its rows are paid again.", text)
        return 0
    raise JournalConflict(
        f"{text} Nobody else spends from the account, so it is a copy, or older than its run.",
        hint="Put the newer journal back. Or go on with this one, which pays again for what it does not know: "
        f"lightmeter resume {journal.folder} --accept-journal",
    )
