"""Everything a run holds open: the journal (locked), the service, the client, and what was planned."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightmeter.client.client import Client
from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import JournalError, SettingsError
from lightmeter.journal.changes import get_meta, put_meta
from lightmeter.journal.items import count_by_status
from lightmeter.journal.proofs import open_submissions
from lightmeter.journal.store import Journal, copy_journal, journal_path, reading, run_lock, set_aside
from lightmeter.manifest.readers import ManifestReader, ManifestSource
from lightmeter.pipeline.embedded import Endpoint, endpoint
from lightmeter.pipeline.folder import prepare_folder
from lightmeter.pipeline.keybudget import KeyBudget, key_budget
from lightmeter.pipeline.options import ASKED, Options
from lightmeter.pipeline.plan import Plan, fresh_run_id
from lightmeter.settings import Settings

__all__ = [
    "Header",
    "Session",
    "adopt",
    "changed_options",
    "holds_run_of",
    "open_session",
    "read_header",
    "store_options",
]

PLAN_NAME: Final = "plan.json"


@dataclass(frozen=True, slots=True)
class Header:
    """What the journal says of the run as a whole.

    Attributes:
        run_id: Names it in every table.
        manifest: Name of the manifest; with its sha256.
        options: What was asked for.
        price_per_image_milli: Millicredits an image or frame, before rounding.
        extra_types: Types of the manifest's own columns.
        planned_at: When, as ISO text.
        balance_before: Credits of the account before the first request, once known.
        balance_after: Credits after the last look, once known.
    """

    run_id: str
    manifest: str
    manifest_sha256: str
    options: Options
    price_per_image_milli: int
    extra_types: dict[str, str]
    planned_at: str
    balance_before: int | None
    balance_after: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Session:
    """An open run.

    Attributes:
        out: Its folder.
        journal: Its memory, locked.
        header: What was asked for.
        endpoint: Where requests go.
        client: Who talks to it.
        clock: Time.
        charges_final_s: Seconds after it was sent in which a request without an answer may still be charged.
        key: The budget of the key over all runs of this machine, if there is one.
        state_dir: Where processes of this machine share the pace of a key; None: they do not.
    """

    out: Path
    journal: Journal
    header: Header
    endpoint: Endpoint
    client: Client
    clock: Clock
    charges_final_s: float
    key: KeyBudget | None = None
    state_dir: Path | None = None


def read_header(out: Path) -> Header:
    """The header of the run in a folder.

    Raises:
        JournalError: there is no run there.
    """
    with reading(out) as db:
        meta = get_meta(db)
    try:
        return Header(
            run_id=meta["run_id"],
            manifest=meta["manifest"],
            manifest_sha256=meta["manifest_sha256"],
            options=Options.model_validate_json(meta["options"]),
            price_per_image_milli=int(meta["price_per_image_milli"]),
            extra_types=json.loads(meta["extra_types"]),
            planned_at=meta["planned_at"],
            balance_before=_number(meta.get("balance_before")),
            balance_after=_number(meta.get("balance_after")),
            seconds=float(meta.get("seconds", "0")),
        )
    except (KeyError, ValueError) as error:
        raise JournalError(f"{journal_path(out)} lacks its header: {error}.") from error


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def adopt(plan: Plan, out: Path) -> None:
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
        if there and read_header(out).manifest_sha256 != plan.manifest_sha256:
            _set_aside(out)
            there = False
        if not there:
            run_id = fresh_run_id(SystemClock())
            copy_journal(journal_path(plan.folder), journal_path(out), {"run_id": run_id})
            plan.save(out / PLAN_NAME)
            return
    changed_options(out, plan.options)


def _set_aside(out: Path) -> None:
    header = read_header(out)
    with reading(out) as db:
        counts = count_by_status(db)
        unfinished = sum(counts[status] for status in ("pending", "over_budget", "in_doubt")) or open_submissions(db)
    if unfinished:
        raise SettingsError(
            f"{out} holds a run of another manifest ({header.manifest}) that is not finished.",
            hint="Choose another folder with --out, or go on with that run: lightmeter resume DIR",
        )
    target = out / "runs" / header.run_id
    set_aside(journal_path(out), journal_path(target))
    for name in out.glob(f"{Path(PLAN_NAME).stem}.*"):
        name.replace(target / name.name)


def changed_options(out: Path, now: Options, named: Collection[str] | None = None) -> dict[str, Any]:
    """What differs between the options of the run in `out` and `now`, all of it allowed to change between runs.

    Args:
        out: The folder of the run.
        now: What is wanted now.
        named: Only these were said: the run keeps what was not, above all its budget. None means all were.

    Raises:
        SettingsError: something differs that changes what is asked for.
    """
    before = read_header(out).options
    changed = {name: value for name, value in now if value != getattr(before, name)}
    fixed = [name.replace("_", "-") for name in changed if name in ASKED]
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


def holds_run_of(out: Path, source: ManifestSource) -> bool:
    """Whether `out` already holds a run of this very manifest, so that there is nothing to plan anew."""
    if not journal_path(out).exists():
        return False
    reader = ManifestReader(source)
    deque(reader, maxlen=0)  # the hash is known once all of it was read
    return read_header(out).manifest_sha256 == reader.sha256


@asynccontextmanager
async def open_session(
    out: Path, settings: Settings, options: Options | None = None, clock: Clock | None = None
) -> AsyncIterator[Session]:
    """Open the run in `out`; `options` replaces what may change between runs (budget, pace, address).

    Raises:
        JournalError: there is no run there, another process is running it, or the ledger of the key cannot be used.
        SettingsError: a service is named and there is no key for it.
    """
    read_header(out)  # says so if there is no run, before a lock file is made
    with Journal(out) as journal:
        if options is not None:
            await journal.write(put_meta({"options": options.model_dump_json()}))
        header = read_header(out)
        clock = clock or SystemClock()
        connections = header.options.max_concurrency + 16
        async with AsyncExitStack() as stack:
            where = await stack.enter_async_context(endpoint(header.options, settings, out))
            key = stack.enter_context(key_budget(settings, where, header.run_id, out, clock))
            client = Client(where.base_url, where.api_key, connections=connections, proxy=_proxy(settings, where))
            await stack.enter_async_context(client)
            state_dir = settings.state_dir
            yield Session(out, journal, header, where, client, clock, settings.charges_final_s, key, state_dir)


def _proxy(settings: Settings, where: Endpoint) -> str | None:
    """The embedded service is on this machine, where no proxy leads to."""
    return None if where.embedded else settings.proxy
