"""Everything a run holds open: the journal (locked), the service, the client, and what was planned."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightmeter.client.client import Client
from lightmeter.clock import ClockAnchor, MachineClock, RunClock, SystemClock
from lightmeter.embedded_service import Endpoint, open_endpoint
from lightmeter.errors import SettingsError
from lightmeter.journal.balance_proofs import open_submissions
from lightmeter.journal.commands import get_meta, put_meta
from lightmeter.journal.files import archive_journal, copy_journal, journal_path, run_lock
from lightmeter.journal.header import RunHeader, fresh_run_id, read_run_header
from lightmeter.journal.items import count_by_status
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.submissions import last_submission_id
from lightmeter.manifest.readers import ManifestSource, digest_of
from lightmeter.money.key_budget import KeyBudget, open_key_budget
from lightmeter.money.stale_journal import JournalCheck, track_watermark
from lightmeter.options import READ_OPTIONS, REQUEST_OPTIONS, Options
from lightmeter.planning.output_folder import prepare_folder
from lightmeter.planning.plan import Plan
from lightmeter.settings import Settings

__all__ = [
    "Session",
    "changed_options",
    "has_run_of_manifest",
    "has_run_of_plan",
    "open_session",
    "prepare_run_journal",
    "store_options",
]

PLAN_NAME: Final = "plan.json"
_ANCHOR: Final = "clock_anchor"


@dataclass(frozen=True, slots=True)
class Session:
    """An open run.

    Attributes:
        out: Its folder.
        journal: Its memory, locked.
        header: What was asked for.
        endpoint: Where requests go.
        client: Who talks to it.
        clock: Time, which does not step while the session is open.
        first_submission_id: Number of the first submission that this session can make; those below are of earlier ones.
        charges_final_s: Seconds after it was sent in which a request without an answer may still be charged.
        key: The budget of the key over all runs of this machine, if there is one.
        state_dir: Where processes of this machine share the pace of a key; None: they do not.
        check: Whether the journal is known to be the run's latest state.
    """

    out: Path
    journal: Journal
    header: RunHeader
    endpoint: Endpoint
    client: Client
    clock: RunClock
    first_submission_id: int
    charges_final_s: float
    key: KeyBudget | None = None
    state_dir: Path | None = None
    check: JournalCheck = "unknown"


def prepare_run_journal(plan: Plan, out: Path) -> None:
    """Make the plan's rows the journal of `out`, or go on with the journal that is there.

    A finished run of another manifest is set aside in `out/runs/<its run id>/`, its journal whole. All of it happens
    under the run's lock: of two that start at once, one has the folder.

    Raises:
        SettingsError: the folder holds a run of another manifest that is not finished, or one with other options; or
            it cannot be written to.
        JournalLocked: another process is running the folder.
    """
    prepare_folder(out)
    with run_lock(out):
        there = journal_path(out).exists()
        if there and read_run_header(out).manifest_sha256 != plan.manifest_sha256:
            _set_aside(out)
            there = False
        if not there:
            run_id = fresh_run_id(SystemClock())
            copy_journal(journal_path(plan.folder), journal_path(out), {"run_id": run_id})
            plan.save(out / PLAN_NAME)
            return
    changed_options(out, plan.options)


def _set_aside(out: Path) -> None:
    header = read_run_header(out)
    with open_read_only(out) as db:
        counts = count_by_status(db)
        unfinished = sum(counts[status] for status in ("pending", "over_budget", "in_doubt")) or open_submissions(db)
    if unfinished:
        raise SettingsError(
            f"{out} holds a run of another manifest ({header.manifest}) that is not finished.",
            hint="Choose another folder with --out, or go on with that run: lightmeter resume DIR",
        )
    target = out / "runs" / header.run_id
    archive_journal(journal_path(out), journal_path(target))
    for name in out.glob(f"{Path(PLAN_NAME).stem}.*"):
        name.replace(target / name.name)


def changed_options(out: Path, now: Options, named: Collection[str] | None = None) -> dict[str, Any]:
    """What differs between the options of the run in `out` and `now`, all of it allowed to change between runs.

    Args:
        out: The folder of the run.
        now: What is wanted now.
        named: Only these were said: the run keeps what was not, above all its budget. None means all were.

    Raises:
        SettingsError: something differs that changes what is asked for, or how the manifest is read.
    """
    before = read_run_header(out).options
    changed = {name: value for name, value in now if value != getattr(before, name)}
    if now.prices is None:  # the run keeps the prices that it was planned with
        changed.pop("prices", None)
    fixed = [name.replace("_", "-") for name in changed if name in (*REQUEST_OPTIONS, *READ_OPTIONS, "prices")]
    if fixed:
        raise SettingsError(
            f"{out} holds a run of this manifest with other options: {', '.join(fixed)}.",
            hint="Choose another folder with --out, or use the same options.",
        )
    return {name: value for name, value in changed.items() if named is None or name in named}


async def store_options(out: Path, options: Options) -> None:
    """Give the run in `out` new options."""
    with Journal(out) as journal:
        await journal.write(put_meta({"options": options.model_dump_json()}))


def has_run_of_manifest(out: Path, source: ManifestSource, options: Options) -> bool:
    """Whether `out` already holds a run of this very manifest, so that there is nothing to plan anew."""
    if not journal_path(out).exists():
        return False
    return read_run_header(out).manifest_sha256 == digest_of(source, options.read_options)


def has_run_of_plan(out: Path, plan: Plan) -> bool:
    """Whether `out` already holds a run of the manifest that was planned, so that there is nothing to adopt."""
    return journal_path(out).exists() and read_run_header(out).manifest_sha256 == plan.manifest_sha256


@asynccontextmanager
async def open_session(
    out: Path,
    settings: Settings,
    options: Options | None = None,
    clock: MachineClock | None = None,
    *,
    accept_journal: bool = False,
) -> AsyncIterator[Session]:
    """Open the run in `out`.

    Args:
        out: The folder of the run.
        settings: The user's.
        options: Replace what may change between runs (budget, pace, address).
        clock: Time; None means the system's.
        accept_journal: Go on with a journal that is older than its run, or a copy, as a run with a new id.

    Raises:
        JournalConflict: the journal is older than its run, or a copy; nothing was sent.
        JournalError: there is no run there, another process is running it, or the ledger of the key cannot be used.
        SettingsError: a service is named and there is no key for it.
    """
    read_run_header(out)  # says so if there is no run, before a lock file is made
    with Journal(out) as journal:
        machine = clock or SystemClock()
        async with AsyncExitStack() as stack:
            check = stack.enter_context(track_watermark(journal, settings.state_dir, machine, accept=accept_journal))
            if options is not None:
                await journal.write(put_meta({"options": options.model_dump_json()}))
            header = read_run_header(out)
            run_clock, first = await _begin(journal, out, machine)
            connections = header.options.max_concurrency + 16
            where = await stack.enter_async_context(open_endpoint(header.options, settings, out))
            key = stack.enter_context(open_key_budget(settings, where, header.run_id, out, run_clock))
            client = Client(where.base_url, where.api_key, connections=connections, proxy=_proxy(settings, where))
            await stack.enter_async_context(client)
            state_dir = settings.state_dir
            yield Session(
                out=out,
                journal=journal,
                header=header,
                endpoint=where,
                client=client,
                clock=run_clock,
                first_submission_id=first,
                charges_final_s=settings.charges_final_s,
                key=key,
                state_dir=state_dir,
                check=check,
            )


async def _begin(journal: Journal, out: Path, machine: MachineClock) -> tuple[RunClock, int]:
    """The clock of a session that begins, written down for the next one, and the number of its first submission."""
    with open_read_only(out) as db:
        kept = get_meta(db).get(_ANCHOR)
        last = last_submission_id(db)
    before = None if kept is None else ClockAnchor(**json.loads(kept))
    clock = RunClock(machine, before)
    await journal.write(put_meta({_ANCHOR: json.dumps(clock.anchor.to_dict())}))
    return clock, last + 1


def _proxy(settings: Settings, where: Endpoint) -> str | None:
    """The embedded service is on this machine, where no proxy leads to."""
    return None if where.embedded else settings.proxy
