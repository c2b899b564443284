"""Add the rows that a run with `--stream` lacks, because it stopped before it had read its manifest, from a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.cache.reuse import find_cached_rows
from lightmeter.clock import SystemClock
from lightmeter.journal.commands.append_rows import append_rows_of_plan
from lightmeter.journal.commands.carry_over import carry_results
from lightmeter.journal.commands.odd_sizes import add_odd_size_findings
from lightmeter.journal.commands.plan_rows import apply_cached_rows, planned_rows
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.files import copy_journal, journal_path, replace_journal
from lightmeter.journal.frame_rows import row_of
from lightmeter.journal.header import PLANNING_OPEN, end_planning
from lightmeter.journal.queries.items import count_rows
from lightmeter.journal.store import open_read_only
from lightmeter.planning.plan import Plan
from lightmeter.run_session.next_run import PLAN_NAME, comparable_runs
from lightmeter.settings import Settings

_NAME: Final = ".completed-journal.sqlite"


def add_missing_rows(plan: Plan, out: Path, settings: Settings) -> bool:
    """Add those rows of a plan that the run in `out` lacks to its journal; return whether all rows are planned then.

    The rows that the run has stay as they are, with their answers and charges: the run goes on within its budget. A
    new row that repeats one of them becomes its duplicate. A new row that an earlier run paid for gets that answer.

    Args:
        plan: A plan of the run's manifest, with the run's options. Nothing is added if it has no rows itself.
        out: The output folder, locked by the caller. If the process is killed, its journal has all rows or none of
            them.
        settings: The user's settings.

    Raises:
        JournalLocked: a process is reading the journal.
        JournalError: a journal cannot be read or written.
    """
    with open_read_only(plan.folder) as db:
        meta = get_meta(db)
    if PLANNING_OPEN in meta:
        return False
    earlier = [folder for folder in comparable_runs(plan, out) if folder != out]
    target = out / _NAME

    def complete(db: sqlite.Connection) -> None:
        with db:
            _copy_rows(plan, db, settings)
            end_planning({"extra_types": meta["extra_types"]})(db)
        carry_results(db, earlier)

    try:
        copy_journal(journal_path(out), target, change=complete)
        replace_journal(target, journal_path(out))
    finally:
        target.unlink(missing_ok=True)
    plan.save(out / PLAN_NAME, thumbnails=False)
    return True


def _copy_rows(plan: Plan, db: sqlite.Connection, settings: Settings) -> None:
    """Copy the rows of a plan that the journal `db` lacks, unsent or with a cached answer."""
    first = count_rows(db)
    with open_read_only(plan.folder) as planned:
        rows = (row for row, _ in planned_rows(planned, first))
        append_rows_of_plan(rows, find_duplicates=plan.options.duplicates != "off")(db)
    if plan.options.precheck:
        add_odd_size_findings(settings.quality.odd_size)(db)
    for cached in list(find_cached_rows(db, plan.options, settings, SystemClock().now())):
        apply_cached_rows([row for row in cached if row_of(row.seq) >= first])(db)
