"""Start the next run of a folder, after its manifest changed: carry over paid answers, and archive the present run.

First the next journal is written beside the present one. Then the present one is copied to `runs/<its run id>/`. After
that, the next journal takes the place of the present one. So the folder always has a journal with every request, even
if the process is killed. At last, the oldest runs in `runs/` are removed if they are more than the user's settings
allow. A run stays if the next newer run cannot take its rows, because it has other options.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.clock import SystemClock
from lightmeter.errors import SettingsError
from lightmeter.export.export_shard import merge_extra_types
from lightmeter.journal.commands.carry_over import (
    carry_results,
    forget_open_requests,
    has_open_requests,
    move_open_requests,
)
from lightmeter.journal.commands.fold_run import fold_run
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.files import copy_journal, journal_path, replace_journal
from lightmeter.journal.header import (
    CARRIED_FROM,
    EMBEDDED_KEY,
    FOLDED,
    POSITION,
    RunHeader,
    archived_runs,
    fresh_run_id,
    read_run_header,
)
from lightmeter.journal.queries.submissions import last_submission_id
from lightmeter.journal.store import open_read_only
from lightmeter.options import REQUEST_OPTIONS, Options
from lightmeter.planning.plan import Plan, plan_from_journal
from lightmeter.settings import Settings
from lightmeter.tempdirs import temp_dir_unless_error

PLAN_NAME: Final = "plan.json"

_NEXT_NAME: Final = ".next-journal.sqlite"

_COPIED_META: Final = ("clock_anchor", "pace")
"""Names of the journal's values that the next run takes over: the times of the clocks, and the learned rate limit."""


def start_next_run(plan: Plan, out: Path, before: RunHeader | None, keep_runs: int) -> RunHeader:
    """Create the journal of a new run in an output folder, and archive the run that the folder holds, if any.

    Return the header of the new run, which has the rows of the plan. A row that an earlier run of the folder paid for
    gets the earlier answer.

    Args:
        plan: The plan of the new run.
        out: The output folder, locked by the caller.
        before: The header of the run that the folder holds; None if it holds none.
        keep_runs: Number of archived runs to keep; older ones are removed.

    Raises:
        SettingsError: the run in the folder has requests without an answer that were sent with other options.
        JournalLocked: a process is reading the journal.
        JournalError: a journal cannot be written.
    """
    meta = {"run_id": fresh_run_id(SystemClock()), EMBEDDED_KEY: str(int(plan.base_url is None))}
    moved = before is not None and has_requests_to_move(plan, out, before)
    if before is not None:
        meta |= _inherited_meta(out, before, moved=moved)
    meta[POSITION] = str(1 + (0 if before is None else before.position))
    earlier = list(comparable_runs(plan, out))
    target = out / _NEXT_NAME

    def carry(db: sqlite.Connection) -> None:
        if moved:
            move_open_requests(db, out)
        carry_results(db, earlier)

    try:
        copy_journal(journal_path(plan.folder), target, meta, carry)
        if before is not None:
            archive = out / "runs" / before.run_id
            change = forget_open_requests if moved else None
            copy_journal(journal_path(out), journal_path(archive), change=change)
        replace_journal(target, journal_path(out))
    finally:
        target.unlink(missing_ok=True)
    if before is not None:
        for path in out.glob(f"{Path(PLAN_NAME).stem}.*"):
            path.replace(archive / path.name)
    header = read_run_header(out)
    if not header.planning_open:
        plan.save(out / PLAN_NAME, thumbnails=False)
    remove_old_runs(out, keep_runs, None if before is None else archive)
    return header


def preview_next_run(plan: Plan, out: Path, settings: Settings) -> Plan:
    """Return the plan as it would be run in a folder: rows that earlier runs there paid for are answered and free.

    Args:
        plan: The plan; it does not change. Use this plan, not the returned one, to start a run.
        out: The output folder; it may hold a run, but need not.
        settings: The user's settings.
    """
    earlier = list(comparable_runs(plan, out))
    if not earlier:
        return plan
    with temp_dir_unless_error() as temp_dir:

        def carry(db: sqlite.Connection) -> None:
            carry_results(db, earlier)

        copy_journal(journal_path(plan.folder), journal_path(temp_dir.path), change=carry)
        return replace(plan_from_journal(temp_dir, plan.options, settings, plan.service), base_url=plan.base_url)


def has_requests_to_move(plan: Plan, out: Path, before: RunHeader) -> bool:
    """Return whether the run in `out`, with the header `before`, has requests whose answer or charge is unknown.

    Raises:
        SettingsError: there are such requests, but their run has other values of `REQUEST_OPTIONS` than the plan, or
            only one of the two uses the embedded service.
    """
    with open_read_only(out) as db:
        if not has_open_requests(db):
            return False
    if _is_comparable(plan, before):
        return True
    raise SettingsError(
        f"{out} holds requests in doubt of a run with other options ({before.manifest}).",
        hint=f"Choose another folder with --out, or finish that run: lightmeter resume {out}",
    )


def _inherited_meta(out: Path, before: RunHeader, *, moved: bool) -> dict[str, str]:
    with open_read_only(out) as db:
        meta = {name: value for name, value in get_meta(db).items() if name in _COPIED_META}
        if moved:
            runs = [*before.carried_from, *before.former_runs, (before.run_id, last_submission_id(db))]
            meta[CARRIED_FROM] = json.dumps(runs)
    return meta


def comparable_runs(plan: Plan, out: Path) -> Iterator[Path]:
    """Yield the folders of those runs in `out` whose answers a plan can use, newest first.

    Such a run has the plan's values of all `REQUEST_OPTIONS`: the options that decide the content and the price of an
    answer, such as `features`. Also, either both or neither use the embedded service. Yield none if the plan's option
    `reuse` is off.
    """
    if not plan.options.reuse:
        return
    present = [out] if journal_path(out).exists() else []
    for folder in [*present, *reversed(archived_runs(out))]:
        header = read_run_header(folder)
        if not header.checked_only and _is_comparable(plan, header):
            yield folder


def _is_comparable(plan: Plan, header: RunHeader) -> bool:
    same_service = header.embedded is None or header.embedded == (plan.base_url is None)
    return same_service and _request_options(header.options) == _request_options(plan.options)


def _request_options(options: Options) -> list[Any]:
    return [getattr(options, name) for name in REQUEST_OPTIONS]


def remove_old_runs(out: Path, keep: int, newest: Path | None = None) -> None:
    """Remove the archived runs of an output folder, except the newest `keep` ones.

    The newest run stays even if `keep` is 0. Before a run is removed, the next newer run receives the rows, images and
    videos that only the removed run has, and the credits that each row cost. Their answers then count as answers of
    that newer run. So a run also stays if the next newer one has other values of `REQUEST_OPTIONS`, or if only one of
    the two uses the embedded service.

    Args:
        out: The output folder; archived runs are in its subfolder `runs`.
        keep: Number of archived runs to keep.
        newest: Folder of the run that was archived last; None means that the times of the runs decide.
    """
    archived = sorted(archived_runs(out), key=lambda folder: folder == newest)
    for path in {path.parent for path in out.glob("runs/*/journal.sqlite")} - {*archived}:
        shutil.rmtree(path)  # a process was killed before it had removed this run
    for folder, later in islice(pairwise(archived), max(0, len(archived) - keep)):
        old, header = read_run_header(folder), read_run_header(later)
        if _request_values(old) != _request_values(header):
            continue
        types = json.dumps(merge_extra_types([old, header]))
        with closing(sqlite.connect(journal_path(later), create=False)) as db:
            fold_run(db, folder, put_meta({"extra_types": types, FOLDED: old.run_id}))
        shutil.rmtree(folder)


def _request_values(header: RunHeader) -> tuple[bool | None, list[Any]]:
    """Return what a run asked for: whether it uses the embedded service (None: unknown), and its `REQUEST_OPTIONS`."""
    return header.embedded, _request_options(header.options)
