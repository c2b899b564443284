"""Detect, before anything is spent, a journal that is an old state of its run, or a copy.

A run that continued such a journal would pay for the same rows again, and would use the same idempotency keys for other
rows. Two sources outside of the folder reveal such a journal. One is the watermark: a file in the state directory of
this machine, with the latest position of the journal. The other is the balance of the account. If the user accepts such
a journal, the run gets a new id.
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
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import FORMER_RUNS, fresh_run_id
from lightmeter.journal.queries.charges import spent_since
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.watermark import (
    JournalPosition,
    Watermark,
    WatermarkRecord,
    read_position,
    watermark_path,
    write_off,
)

JournalCheck = Literal["latest", "accepted", "unknown"]
"""What is known about a journal.

`latest`: it is the latest state of its run. `accepted`: the user accepted it as it is. `unknown`: neither is known.
"""

_log: Final = logging.getLogger(__name__)


@contextmanager
def track_watermark(journal: Journal, state_dir: Path, clock: Clock, *, accept: bool) -> Iterator[JournalCheck]:
    """Check that a run's journal is neither an older state nor a copy.

    Keep the watermark up to date in the `with` block.

    The watermark is a file outside of the run's folder that says how much the journal contains. It is rewritten after
    each commit until the `with` block ends. If it cannot be written, log a warning and continue without it.

    Yield one of three values:

    - `latest`: The watermark shows that the journal is the newest state. Or there is no watermark, and the journal
      records neither a request nor a balance yet.
    - `accepted`: The journal is outdated, a copy, or unknown, and `accept` is true.
    - `unknown`: No watermark shows whether the journal is the newest state, and `accept` is false.

    Args:
        journal: The journal, open for writing.
        state_dir: The folder with the watermarks of this machine.
        clock: Source of the time for a new run id.
        accept: Whether the user accepts a journal that is outdated, a copy, or unknown (`--accept-journal`). Such a
            journal is then continued under a new run id.

    Raises:
        JournalConflict: the journal is outdated or a copy, and `accept` is false; nothing was changed.
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
            run_id, now = _assign_new_id(journal, run_id, now, lost, clock)
            mark, check = _open(state_dir, run_id), "accepted"
        if mark is not None:
            try:
                mark.begin(run_id, folder, now, checked=check != "unknown")
            except OSError as error:
                _log.warning("The watermark of run %s cannot be written: %s.", run_id, error)
                mark.close()
            journal.call_after_commits(mark.advance)
        yield check
        succeeded = True
    finally:
        journal.call_after_commits(None)
        if mark is not None:
            mark.close(checked=succeeded)


def _open(state_dir: Path, run_id: str) -> Watermark | None:
    path = watermark_path(state_dir, run_id)
    try:
        return Watermark(path)
    except OSError as error:
        text = "%s cannot be written: %s. If the journal is replaced by an older one, that will not be noticed."
        _log.warning(text, path, error)
        return None


def _conflict(known: WatermarkRecord, folder: Path, run_id: str, now: JournalPosition) -> JournalConflict | None:
    """Return the error to raise if a journal is a copy, or older than its run; None if it is neither.

    A journal is a copy if the run was last started in another folder, and that folder still holds the run. It is older
    if it contains fewer state changes of requests than the watermark file says.

    Args:
        known: The content of the watermark file: where the run was last started, and how much its journal contained
            when the file was last written.
        folder: Folder of the journal.
        run_id: Id of the run in the journal.
        now: How much the journal contains now.
    """
    again = f"lightmeter resume {folder} --accept-journal"
    if _is_copy(known, folder, run_id):
        return JournalConflict(
            f"{folder} is a copy of the run in {known.folder}: both would pay for the same rows.",
            hint=f"Continue that run, or make the copy a separate run, which pays for the same rows again: {again}",
        )
    if now.steps >= known.position.steps:
        return None
    before = known.position
    return JournalConflict(
        f"The journal in {folder} is older than its run: it has {now.requests} of {before.requests} requests, "
        f"{now.steps} of {before.steps} steps and {now.credits} of {before.credits} credits. Was it restored from a "
        "backup, or did it lose its log?",
        hint=f"Restore the newer journal. Or continue with this one, and pay again for answers that it lacks: {again}",
    )


def _is_copy(known: WatermarkRecord, folder: Path, run_id: str) -> bool:
    """Return whether the run `run_id` was last started in another folder that still holds it; then `folder` is a copy.

    `known` is the content of the watermark file, which names that other folder.
    """
    last, here = journal_path(known.folder), journal_path(folder)
    try:
        if not last.exists() or last.samefile(here):
            return False
        with open_read_only(known.folder) as db:
            return get_meta(db).get("run_id") == run_id
    except (OSError, JournalError):
        return False


def _assign_new_id(
    journal: Journal, former: str, now: JournalPosition, lost: JournalPosition, clock: Clock
) -> tuple[str, JournalPosition]:
    """Give the run of an outdated or copied journal a new id.

    Return (the new id, how much the journal contains after that).

    If the run spent credits that the journal lacks, these credits are recorded as reserved.

    Args:
        journal: The journal.
        former: The present id of the run.
        now: How much the journal contains.
        lost: How much the latest journal of the run contained.
        clock: Source of the time, for the new id.
    """
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
    """Return how many credits, at least, left the account that the requests in the journal do not explain; 0 or more.

    That is the newest opening balance in the journal, minus the credits that requests explain, minus `balance`, the
    present balance. An opening balance was read while no request could still be charged. A request that changed state
    after that reading explains as many credits as it was charged; while the charge is unknown, as many as are reserved
    for it. Without an opening balance, the result is 0.
    """
    opening = opening_reading(db)
    if opening is None:
        return 0
    return max(0, opening.balance - spent_since(db, opening.last_transition_id) - balance)


async def judge_balance_gap(journal: Journal, check: JournalCheck, gap: int, at: float, *, sole_spender: bool) -> int:
    """React to credits that are missing at the start of a run: they may mean that the journal is outdated.

    Do nothing if `check` is `latest`. If others may spend from the account, only log a warning. If nobody else spends,
    the journal must be outdated or a copy. Then raise JournalConflict if `check` is `unknown`, and reserve the missing
    credits if it is `accepted`.

    Args:
        journal: The journal, open for writing.
        check: What `track_watermark` yielded: whether the journal is the latest one, or the user accepted it.
        gap: The missing credits, from `balance_gap`.
        at: Time of the reservation, in seconds since the epoch.
        sole_spender: Whether the user says that nobody else spends from the account.

    Returns:
        The number of credits reserved; 0 if none.

    Raises:
        JournalConflict: nobody else spends, and `check` is `unknown`; nothing was sent.
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
        hint="Restore the newer journal. Or continue with this one, and pay again for answers that it lacks: "
        f"lightmeter resume {journal.folder} --accept-journal",
    )
