"""Prepare a run's folder, and open the resources of a run: the locked journal, the service and the client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

from lightmeter.client.base_url import canonical_base_url
from lightmeter.client.client import Client
from lightmeter.clock import ClockAnchor, RunClock, SystemClock
from lightmeter.embedded_service import Endpoint, check_service, open_endpoint
from lightmeter.errors import JournalLocked, SettingsError, UsageError
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.files import journal_path, run_lock
from lightmeter.journal.header import RunHeader, read_run_header
from lightmeter.journal.queries.submissions import last_submission_id
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, add_thumbnails
from lightmeter.manifest.readers import ManifestSource, digest_of
from lightmeter.money.key_budget import KeyBudget, open_key_budget
from lightmeter.money.stale_journal import JournalCheck, track_watermark
from lightmeter.options import RESUME_OPTIONS, Options, TableFormat
from lightmeter.paths import URI
from lightmeter.planning.checks.check_cache import remove_check_cache
from lightmeter.planning.plan import Plan
from lightmeter.prechecks.robots_rules import RobotsMode
from lightmeter.run_session.missing_rows import add_missing_rows
from lightmeter.run_session.next_run import has_requests_to_move, start_next_run
from lightmeter.run_session.spend_alerts import watch_spend
from lightmeter.settings import Settings, read_settings
from lightmeter.tables.remote.table_formats import check_table_format

_ANCHOR_KEY: Final = "clock_anchor"
"""Name under which the journal stores the times of the machine's clocks at the start of the last session."""

_SERVICE_KEY: Final = "service"
"""Name under which the journal stores the address of the service, and the number of the first request to it."""

_SPARE_CONNECTIONS: Final = 16
"""Connections for polls and balance readings, in addition to the connections for requests that cost credits."""


@dataclass(frozen=True, slots=True)
class Session:
    """The resources of a run that this process has opened to send requests.

    Attributes:
        out: The output folder of the run.
        journal: The journal of the run, locked against other processes.
        header: The values that describe the run as a whole, such as its options.
        endpoint: Base URL and key of the service.
        client: The HTTP client of the service.
        clock: The run's clock, which goes on evenly when the machine's clock is set.
        first_submission_id: Number of the first request of this session; earlier processes sent requests with lower
            numbers.
        first_at_service: Number of the first request to the service's present address; earlier ones may show the prices
            of another service.
        charges_final_s: Age of a request in seconds up to which it may still be charged although no answer has come.
        key_budget: The budget of the API key for all runs of this machine together; None if there is none.
        state_dir: Folder where processes of this machine share the rate limit of an API key; None if they share none.
        check: What is known about the journal: `latest` (it is no old state and no copy), `accepted` (the user accepted
            it as it is), or `unknown`.
        max_per_host: Most downloads of content from one host at the same time.
        robots: With `respect`, no content is sent from hosts that opt out of use by AI; other values change nothing.
    """

    out: Path
    journal: Journal
    header: RunHeader
    endpoint: Endpoint
    client: Client
    clock: RunClock
    first_submission_id: int
    first_at_service: int
    charges_final_s: float
    key_budget: KeyBudget | None = None
    state_dir: Path | None = None
    check: JournalCheck = "unknown"
    max_per_host: int = 64
    robots: RobotsMode = "warn"


def prepare_folder(out: Path, table_format: TableFormat = "parquet") -> None:
    """Create the output folder if it is missing, and check that tables of a format can be written there.

    Raises:
        SettingsError: `out` is a URI or a file, lies below a file, or is a folder that cannot be written to; or the
            package that writes the format is not installed.
        UsageError: that package cannot write to a folder of this name.
    """
    if URI.match(str(out)):
        raise SettingsError(
            f"The output folder is a URI: {out}. A run needs a folder of this machine.",
            hint="Copy the tables afterwards: lightmeter rebuild DIR --to URI",
        )
    check_table_format(table_format, out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise SettingsError(f"{out} is a file, or lies below one.", hint="Choose a folder for --out.") from error
    except OSError as error:
        raise SettingsError(
            f"{out} cannot be written to: {error.strerror or error}.",
            hint="Choose another folder, or change its permissions.",
        ) from error


def prepare_run_journal(plan: Plan, out: Path, settings: Settings | None = None) -> RunHeader:
    """Create the journal of the folder `out` from the plan's rows; return the header of the folder's run.

    If the folder already holds a run with the plan's manifest, the run stays as it is, and gets the rows that it lacks
    (see `add_missing_rows`). If the folder holds a run with another manifest, a new run begins. Then rows that earlier
    runs paid for keep their results, open requests move to the new run, and the earlier run moves to `out/runs/<its run
    id>/`. If two processes start at the same time, only one gets the folder.

    Args:
        plan: The plan.
        out: The output folder.
        settings: The user's settings; None means those of the environment and the settings file.

    Raises:
        SettingsError: the folder holds a run with other options, it cannot be written to, or only one of the plan and
            the settings is for the embedded service.
        UsageError: the options ask for screening by local back ends, but the rows of the plan are not screened; or the
            tables cannot be written to a folder of this name in the format that the options name.
        JournalLocked: another process is running the folder.
    """
    if plan.options.screen and plan.screen is None:
        raise UsageError(
            "The rows of this plan are not screened yet.", hint="Plan the manifest again, with `lightmeter.plan`."
        )
    settings = settings or read_settings()
    check_service("The plan", plan.options, settings, embedded=plan.base_url is None)
    prepare_folder(out, plan.options.table_format)
    with run_lock(out):
        header = find_run(out)
        add_thumbnails(plan.folder / THUMBNAILS_NAME, out / THUMBNAILS_NAME, settings.thumbnail_bytes)
        if header is None or not _is_run_of(header, plan):
            header = start_next_run(plan, out, header, settings.keep_runs)
            has_new_rows = not header.planning_open
        else:
            changed_options(out, header, plan.options)
            has_new_rows = header.planning_open and add_missing_rows(plan, out, settings)
        if has_new_rows:
            forget_kept_checks(out, plan.options, settings)
        return read_run_header(out)


def forget_kept_checks(out: Path, options: Options, settings: Settings) -> None:
    """Delete the stored results of the pre-checks of a run's manifest, so that the next run checks the content anew.

    Args:
        out: The output folder of the run.
        options: The options of the run.
        settings: The user's settings.
    """
    with open_read_only(out) as db:
        meta = get_meta(db)
    remove_check_cache(meta.get("manifest_path") or meta["manifest"], options, settings)


def _is_run_of(header: RunHeader, plan: Plan) -> bool:
    """Whether the manifests of a run and of a plan have equal content."""
    return header.manifest_sha256 == plan.manifest_sha256


def changed_options(
    out: Path, header: RunHeader, new_options: Options, explicit: Collection[str] | None = None
) -> dict[str, Any]:
    """Return name → new value for each option that differs from the option of the run in `out`.

    All options returned may change between two starts of a run. If any other option differs, an error is raised. If
    the new options have no `prices` or no `skip`, the run keeps its own: this counts as no difference.

    Args:
        out: The folder of the run.
        header: The header of the run, with its present options.
        new_options: The new options.
        explicit: Names of the options that the user gave. Other options are not returned: the run keeps its own values,
            such as its budget. None means that the user gave all options.

    Raises:
        SettingsError: an option differs that must not change, for example because it changes the requests, how the
            manifest is read, or the order of sending.
        UsageError: tables of the new `table_format` cannot be written to a folder of this name.
    """
    changed = {name: value for name, value in new_options if value != getattr(header.options, name)}
    for name in ("prices", "skip"):
        if not getattr(new_options, name):  # the run keeps those that it was planned with
            changed.pop(name, None)
    fixed = [name.replace("_", "-") for name in changed if name not in RESUME_OPTIONS]
    if fixed:
        raise SettingsError(
            f"{out} holds a run of this manifest with other options: {', '.join(fixed)}.",
            hint="Choose another folder with --out, or use the same options.",
        )
    if "table_format" in changed:
        check_table_format(new_options.table_format, out)
    return {name: value for name, value in changed.items() if explicit is None or name in explicit}


async def store_options(out: Path, options: Options, settings: Settings, run_id: str) -> None:
    """Replace the options in the journal of the run `run_id` in `out`.

    Raises:
        JournalLocked: another process runs the folder, or has started another run in it.
        SettingsError: the run uses the embedded service, but the options or the settings name another one, or the other
            way round.
    """
    with Journal(out) as journal:
        _check_run(out, settings, options, run_id)
        await journal.write(put_meta({"options": options.model_dump_json()}))


def must_be_run(out: Path, header: RunHeader, run_id: str | None) -> None:
    """Raise JournalLocked if the run in `out`, whose header is `header`, is not `run_id`; None means any run."""
    if run_id not in {None, header.run_id}:
        hint = "Nothing was sent. Choose another folder, or start again when that run has ended."
        raise JournalLocked(f"Another process has started another run in {out}.", hint=hint)


def _check_run(out: Path, settings: Settings, options: Options | None, run_id: str | None) -> None:
    """Raise an error if the run in `out` is not `run_id`, or if it would change to another kind of service.

    `options` are the new options of the run; None means no change. The id is not checked if `run_id` is None.
    """
    header = read_run_header(out)
    must_be_run(out, header, run_id)
    check_service(f"The run in {out}", options or header.options, settings, embedded=header.embedded)


def find_run_of_manifest(out: Path, source: ManifestSource, options: Options) -> RunHeader | None:
    """Return the header of the run in `out` if its manifest has the same content as `source`; None otherwise.

    `options` say how to read `source`.
    """
    header = find_run(out)
    same = header is not None and header.manifest_sha256 == digest_of(source, options.read_options)
    return header if same else None


def find_run_of_plan(out: Path, plan: Plan) -> RunHeader | None:
    """Return the header of the run in `out` if it is a run of the plan's manifest; None otherwise."""
    header = find_run(out)
    return header if header is not None and _is_run_of(header, plan) else None


def has_unsettled_former_run(out: Path, plan: Plan) -> bool:
    """Return whether `out` holds a run of another manifest that has requests whose answer or charge is unknown.

    Raises:
        SettingsError: there are such requests, but their run has other values of `REQUEST_OPTIONS` than the plan, or
            only one of the two uses the embedded service.
    """
    header = find_run(out)
    if header is None or _is_run_of(header, plan):
        return False
    return has_requests_to_move(plan, out, header)


def find_run(out: Path) -> RunHeader | None:
    """Return the header of the run in `out`; None if the folder holds none, or only the rows of `lightmeter check`."""
    header = read_run_header(out) if journal_path(out).exists() else None
    return None if header is None or header.checked_only else header


def _must_hold_run(out: Path) -> None:
    """Raise JournalError if the folder `out` has no journal, and SettingsError if its rows were only checked."""
    if read_run_header(out).checked_only:
        raise SettingsError(
            f"{out} holds the result of a check, not a run.", hint=f"Run it: lightmeter run MANIFEST --out {out}"
        )


@asynccontextmanager
async def open_session(
    out: Path,
    settings: Settings,
    options: Options | None = None,
    clock: SystemClock | None = None,
    *,
    accept_journal: bool = False,
    run_id: str | None = None,
) -> AsyncIterator[Session]:
    """Open the run in `out` for the `with` block: lock its journal, start or find the service, and connect to it.

    Args:
        out: The folder of the run.
        settings: The user's settings.
        options: New options of the run; only the options in `RESUME_OPTIONS` may differ from the run's. None means no
            change.
        clock: The machine's clock; None means the real one.
        accept_journal: Whether to continue even if the journal is an old state of the run or a copy. The run then gets
            a new id.
        run_id: Id of the run to open; None means the run that `out` holds.

    Raises:
        JournalLocked: another process has started another run than `run_id` in `out`.
        JournalConflict: the journal is an old state of the run or a copy; nothing was sent.
        JournalError: there is no run in `out`, another process is running it, or the budget file of the API key is
            unusable.
        SettingsError: the folder holds only the rows of `lightmeter check`, there is no API key for the service that
            the options name, or the run uses the embedded service, but the options or the settings name another one, or
            the other way round.
    """
    _must_hold_run(out)  # before a lock file is made
    with Journal(out) as journal:
        _check_run(out, settings, options, run_id)
        machine = clock or SystemClock()
        async with AsyncExitStack() as stack:
            check = stack.enter_context(track_watermark(journal, settings.state_dir, machine, accept=accept_journal))
            if options is not None:
                await journal.write(put_meta({"options": options.model_dump_json()}))
            header = read_run_header(out)
            run_clock, first = await _start_clock(journal, out, machine)
            endpoint = await stack.enter_async_context(open_endpoint(header.options, settings, out))
            key_budget = stack.enter_context(open_key_budget(settings, endpoint, header.run_id, out, run_clock))
            client = await stack.enter_async_context(_make_client(endpoint, header.options, settings))
            await stack.enter_async_context(watch_spend(journal, header, settings, run_clock))
            yield Session(
                out=out,
                journal=journal,
                header=header,
                endpoint=endpoint,
                client=client,
                clock=run_clock,
                first_submission_id=first,
                first_at_service=await _find_first_at_service(journal, endpoint, first),
                charges_final_s=settings.charges_final_s,
                key_budget=key_budget,
                state_dir=settings.state_dir,
                check=check,
                max_per_host=settings.max_checks_per_host,
                robots=settings.robots,
            )


def _make_client(endpoint: Endpoint, options: Options, settings: Settings) -> Client:
    connections = options.max_concurrency + _SPARE_CONNECTIONS
    proxy = None if endpoint.embedded else settings.proxy  # the embedded service is on this machine
    return Client(endpoint.base_url, endpoint.api_key, connections=connections, proxy=proxy)


async def _start_clock(journal: Journal, out: Path, machine: SystemClock) -> tuple[RunClock, int]:
    """Return (the clock, the number of the first request) of a new session: the work of one process on a run.

    The clock has the time of day that `machine` has now, plus the uptime since. So unlike `machine`, it does not jump
    when the time of day is set. The number is the `submission_id` of the next request: 1 more than the last one in the
    journal. The present times of `machine` are stored in the journal, for the clock of the next session.

    `journal` is the open journal of the run in `out`.
    """
    with open_read_only(out) as db:
        stored = get_meta(db).get(_ANCHOR_KEY)
        last = last_submission_id(db)
    before = None if stored is None else ClockAnchor(**json.loads(stored))
    clock = RunClock(machine, before)
    await journal.write(put_meta({_ANCHOR_KEY: json.dumps(asdict(clock.anchor))}))
    return clock, last + 1


async def _find_first_at_service(journal: Journal, endpoint: Endpoint, next_id: int) -> int:
    """Return the number of the first request of a run to the present address of its service.

    It is `next_id`, the number of the next request, if the address has changed since the last start of the run.
    """
    address = "" if endpoint.embedded else canonical_base_url(endpoint.base_url)
    with open_read_only(journal.folder) as db:
        stored = get_meta(db).get(_SERVICE_KEY)
    known, first = json.loads(stored) if stored else (None, 0)
    if known == address:
        return int(first)
    first = 0 if known is None else next_id  # an older version stored no address
    await journal.write(put_meta({_SERVICE_KEY: json.dumps([address, first])}))
    return first
