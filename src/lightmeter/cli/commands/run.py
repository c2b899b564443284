"""`lightmeter run` and `lightmeter resume`: start or continue a run, and write its tables."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from lightmeter import telemetry
from lightmeter.api.run_result import Run, summarize
from lightmeter.api.run_steps import StartArguments
from lightmeter.api.runs import stream_resume, stream_run, stream_screened_plan
from lightmeter.api.streaming_run import check_streamable, stream_manifest
from lightmeter.cli.options import (
    LOCAL_PATH,
    accept_journal_option,
    explicit_options,
    json_option,
    price_limit_options,
    resume_options,
    run_options,
    table_format_option,
)
from lightmeter.cli.price_comparison import PriceCheck
from lightmeter.cli.print_results import FIRST_QUERY, print_json, show_plan, show_summary
from lightmeter.cli.progress import run_with_progress
from lightmeter.errors import Interrupted, LightmeterError, UsageError
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import RunHeader
from lightmeter.options import Options, make_options
from lightmeter.planning.build import load_plan, refresh_service_info
from lightmeter.planning.consent import must_be_explicit
from lightmeter.planning.plan import Plan
from lightmeter.planning.price_sources import costs_nothing
from lightmeter.pricing.estimate import counted
from lightmeter.run_session.next_run import preview_next_run
from lightmeter.run_session.session import (
    changed_options,
    find_run_of_manifest,
    find_run_of_plan,
    prepare_folder,
    prepare_run_journal,
)
from lightmeter.settings import read_settings
from lightmeter.wire.constants import MAX_CREDITS


@click.command("run")
@click.argument("manifest", required=False)
@click.option("--plan", "plan_file", type=LOCAL_PATH, help="Follow this plan file exactly.")
@click.option("--out", required=True, type=LOCAL_PATH, help="The output folder.")
@run_options
@click.option("--stream", is_flag=True, help="Spend while the manifest is being read. Needs --budget.")
@click.option("--yes", is_flag=True, help="Do not ask before spending.")
@price_limit_options
@table_format_option
@accept_journal_option
@json_option
def run_command(
    manifest: str | None,
    plan_file: Path | None,
    out: Path,
    yes: bool,
    accept_journal: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Plan MANIFEST, ask for confirmation, analyze, and write the tables into --out.

    MANIFEST is a table, a folder, a glob in quotes, or one picture or video: see `lightmeter plan --help`.

    On a terminal, the command shows the plan and asks before it spends, unless --yes is given. Without a terminal it
    does not ask, and needs --yes or --budget. The balance and the back ends of the service are requested before any row
    is checked. If --out already holds this run, the run continues where it stopped, and the command only asks if the
    budget is raised. If --out holds a run of another version of the manifest, only new and changed rows are paid for.
    Ctrl-C, SIGTERM, a closed terminal (SIGHUP) and a scheduler's SIGUSR1, SIGUSR2 or SIGXCPU lose nothing:
    continue with `lightmeter resume DIR`.

    With --screen, a local back end analyzes all rows first, into --out/screen, for free. Only rows that match
    --screen-rule are paid for. The other rows get the status `skipped`, with the reason `screened`.

    With --stream, the first rows are sent while later ones are still read and checked. The first answers come after
    seconds, even if the manifest has millions of rows. The price of the whole run is not known then, so --budget
    CREDITS is required. Options that need all rows first (--plan, --screen, --sample other than order) are refused.

    --compare, --fail-above and --fail-on-rise check the price of a new plan as `lightmeter plan` does, before anything
    is sent. The price of a run that continues is not checked: the user has agreed to it before.

    \b
    Examples:
      lightmeter run photos.csv --out out/ --features tags,colors,nsfw --budget 500
      lightmeter run photos.csv --out out/ --screen nsfwjs --screen-rule 'nsfw.severity BETWEEN .1 AND .9' --yes
      lightmeter run photos.csv --out out/ --stream --budget 500 --yes
      lightmeter run --plan plan.json --out out/ --yes
    """
    check, stream = PriceCheck.from_options(options), bool(options.pop("stream"))
    explicit = explicit_options(options)
    if stream:
        _check_stream_has_use(check, plan_file)
    saved_plan = _load_saved_plan(manifest, plan_file, explicit)
    wanted = saved_plan.options if saved_plan is not None else make_options(**explicit)
    if stream:
        check_streamable(wanted, str(manifest), read_settings())
    if not (yes or wanted.budget is not None or sys.stdin.isatty() or _is_free(saved_plan, wanted)):
        raise UsageError(
            "Without a terminal, run cannot ask for confirmation: give --yes, or a hard cap with --budget CREDITS."
        )
    prepare_folder(out, wanted.table_format)
    with _print_summary_on_error(out, as_json=as_json):
        if saved_plan is not None:
            header = find_run_of_plan(out, saved_plan)
        else:
            header = find_run_of_manifest(out, str(manifest), wanted)
        if header is not None:
            changes = changed_options(out, header, wanted, None if saved_plan is not None else explicit)
            changes["accept_journal"] = accept_journal
            return _continue_run(out, header, changes, saved_plan, ask=not yes, as_json=as_json)
        if stream:
            return _run_while_reading(str(manifest), out, wanted, StartArguments(consent=yes), as_json=as_json)
        plan = _load_plan(manifest, saved_plan, wanted, out, consent=yes)
        preview = _show_and_check_price(plan, out, check, as_json=as_json)
        if (
            not yes
            and not preview.is_free
            and sys.stdin.isatty()
            and not click.confirm(_confirmation_question(preview), err=True)
        ):
            click.echo("Not started: nothing was spent.", err=True)
            return Interrupted.exit_code
        run = run_with_progress(lambda stop: stream_run(plan, out, consent=yes, stop=stop))
        return report_outcome(run, as_json=as_json)


def _is_free(saved_plan: Plan | None, wanted: Options) -> bool:
    return saved_plan.is_free if saved_plan is not None else costs_nothing(wanted, read_settings())


def _check_stream_has_use(check: PriceCheck, plan_file: Path | None) -> None:
    if not check.is_empty:
        raise UsageError("With --stream the price is not known before the run: --budget CREDITS is its limit.")
    if plan_file is not None:
        raise UsageError("A plan file (--plan) has been read to its end, so --stream has no use: leave it out.")


def _show_and_check_price(plan: Plan, out: Path, check: PriceCheck, *, as_json: bool) -> Plan:
    """Show a preview of a run of `plan` in the folder `out`, and return the preview, which is a plan too.

    In the preview, rows that earlier runs in `out` have paid for count as answered, at no cost. To start a run, pass it
    `plan`, not the preview.

    Args:
        plan: The plan. This function does not change it.
        out: The output folder. It may be without a run.
        check: A saved plan to compare with (`--compare`), and limits on the price. The differences from the saved plan
            are printed. They raise an error only if the price has risen by more than `--fail-on-rise`.
        as_json: Whether standard output is kept free for JSON. If so, the plan is shown on standard error.

    Raises:
        TooExpensive: the price exceeds `--fail-above`, or that of the saved plan by more than `--fail-on-rise`.
    """
    preview = preview_next_run(plan, out, read_settings())
    show_plan(preview, err=as_json)
    checked = check.apply(preview)
    for text in checked.lines():
        click.echo(text, err=as_json)
    checked.raise_if_too_expensive()
    return preview


def _confirm_more_credits(out: Path, agreed: int | None, changes: dict[str, Any]) -> bool:
    """Return whether the run in `out` may spend what its new budget allows.

    On a terminal, ask the user, if the budget is raised or removed. Otherwise return true.

    Args:
        out: The output folder.
        agreed: The budget of the run so far; None if it has none.
        changes: The options that change, as name → new value.
    """
    budget = changes.get("budget", agreed)
    if not sys.stdin.isatty() or agreed is None or (budget is not None and budget <= agreed):
        return True
    summary = summarize(out)
    done = f"{out} holds this run, with a budget of {agreed} credits: {summary.paid} paid, {summary.held} held."
    more = None if budget is None else counted(max(0, budget - summary.paid - summary.held), "more credit")
    if click.confirm(
        f"{done} Spend {'an unlimited number of credits' if more is None else f'up to {more}'}?", err=True
    ):
        return True
    click.echo("Not continued: nothing more was spent.", err=True)
    return False


def _continue_run(
    out: Path, header: RunHeader, changes: dict[str, Any], plan: Plan | None, *, ask: bool, as_json: bool
) -> int:
    """Continue a run, and return the exit code. On a terminal, ask the user first if the run may spend more.

    Args:
        out: The output folder.
        header: The run as the folder holds it.
        changes: The options that change, as name → new value.
        plan: The plan file that the user gave; the run gets the rows of it that it lacks. None without a plan file.
        ask: Whether to ask the user, on a terminal, before the run spends more than its budget so far.
        as_json: Whether to print the outcome of the run as JSON.
    """
    if ask and not header.is_free and not _confirm_more_credits(out, header.options.budget, changes):
        return Interrupted.exit_code
    run_id = header.run_id
    if plan is not None:
        run_id = prepare_run_journal(plan, out).run_id
    click.echo(f"{out} already holds this run, with {summarize(out).rows} rows read: continuing it.", err=True)
    run = run_with_progress(lambda stop: stream_resume(out, stop=stop, run_id=run_id, **changes))
    return report_outcome(run, as_json=as_json)


def _run_while_reading(manifest: str, out: Path, wanted: Options, arguments: StartArguments, *, as_json: bool) -> int:
    """Send rows while the manifest is still being read (`--stream`); return the exit code.

    On a terminal, ask the user first, unless `arguments` holds the user's consent.

    Args:
        manifest: Path or URI of the manifest.
        out: The output folder.
        wanted: The options of the run.
        arguments: Arguments that hold only for this start and are not stored with the run, such as the user's consent.
        as_json: Whether to print the outcome as JSON.
    """
    settings = read_settings()
    if not arguments.consent:
        must_be_explicit(wanted, settings)
        question = f"Spend up to {wanted.budget} credits while the manifest is being read?"
        if wanted.budget is not None and sys.stdin.isatty() and not click.confirm(question, err=True):
            click.echo("Not started: nothing was spent.", err=True)
            return Interrupted.exit_code
    run = run_with_progress(lambda stop: stream_manifest(manifest, out, wanted, arguments, stop, settings))
    return report_outcome(run, as_json=as_json)


@contextmanager
def _print_summary_on_error(out: Path, *, as_json: bool) -> Iterator[None]:
    """If a `LightmeterError` ends the `with` block, print a summary of the run in `out` as JSON, then raise the error.

    Print nothing if `as_json` (option `--json`) is false, or if `out` holds no run yet.
    """
    try:
        yield
    except LightmeterError:
        if as_json and journal_path(out).exists():
            print_json(summarize(out).to_dict())
        raise


def _load_saved_plan(manifest: str | None, plan_file: Path | None, options: dict[str, Any]) -> Plan | None:
    """Return the plan in `plan_file`; None if no plan file is given, so that the caller must plan `manifest`.

    Raise click's UsageError if neither a manifest nor a plan file is given, or both are, or if a plan file is given
    together with other `options`.
    """
    if plan_file is None:
        if manifest is None:
            raise click.UsageError("Give a MANIFEST, or a plan file with --plan.")
        return None
    if manifest is not None or options:
        raise click.UsageError("A plan file holds all options: give neither MANIFEST nor other options with --plan.")
    return load_plan(plan_file)


def _load_plan(manifest: str | None, saved_plan: Plan | None, wanted: Options, out: Path, *, consent: bool) -> Plan:
    """Return `saved_plan` with fresh data of the service, or without a saved plan, a new plan of the manifest.

    In both cases, the key, the balance and the back ends of the service are checked.

    Args:
        manifest: Path or URI of the manifest; not used if there is a saved plan.
        saved_plan: The saved plan, or None.
        wanted: The options of the run.
        out: The output folder.
        consent: Whether the user allows what `Plan.needs_consent` lists. If not, a run that needs consent raises
            UsageError.
    """
    settings = read_settings()
    if not consent:
        must_be_explicit(wanted, settings)
    if saved_plan is not None:
        return asyncio.run(refresh_service_info(saved_plan, settings))
    plan: Plan = run_with_progress(
        lambda _: stream_screened_plan(str(manifest), wanted, settings, out=out, require_service=True),
        cancel_on_signal=True,
    )
    return plan


def _confirmation_question(plan: Plan) -> str:
    """Return the question that the user must confirm before the run of `plan` spends credits."""
    limits = [limit for limit in (plan.credits.high, plan.options.budget, plan.balance) if limit is not None]
    if plan.balance == 0 and plan.credits.high != 0:
        return "The account has no credits, so nothing will be analysed. Start the run anyway?"
    limit = min(limits) if limits else None
    return f"Spend up to {'an unknown number of' if limit is None else limit} credit{'' if limit == 1 else 's'}?"


def report_outcome(run: Run, *, as_json: bool) -> int:
    """Print the outcome of a run, and return the exit code.

    With `as_json`, JSON goes to standard output, and the text for people to standard error.
    """
    telemetry.close()
    summary = show_summary(run, err=as_json)
    if not as_json and run.stopped_by is None:
        click.echo(f'next: lightmeter sql {run.folder} "{FIRST_QUERY}"')
    if as_json:
        print_json(summary.to_dict())
    return run.exit_code


@click.command("resume")
@click.argument("folder", metavar="DIR", type=LOCAL_PATH)
@resume_options
@click.option(
    "--pay-again",
    metavar="CREDITS",
    type=click.IntRange(0, MAX_CREDITS),
    help="Maximum credits for sending requests in doubt again, which may charge them twice (0).",
)
@accept_journal_option
@json_option
def resume_command(folder: Path, as_json: bool, **options: Any) -> int:
    """Continue the run in DIR after a stop, a crash or a raised budget.

    First, the command collects answers that are ready at the service. Only then does it send new requests. Answered
    rows are never requested again.

    If the answer to a request was lost, the request is sent again only if the balance proves that it was not charged.
    Otherwise the request is in doubt. --pay-again sends it again; its price is then reserved twice within the budget.

    A journal that was restored from a backup, or copied, may lack later charges. If a record on this machine or the
    account's balance shows this, nothing is sent. Then restore the newer journal, or use --accept-journal: the run
    continues from the old journal, under a new run id.

    \b
    Examples:
      lightmeter resume out/ --budget 1000
      lightmeter resume out/ --pay-again 5
    """
    changes = explicit_options(options)
    with _print_summary_on_error(folder, as_json=as_json):
        run = run_with_progress(lambda stop: stream_resume(folder, stop=stop, **changes))
        return report_outcome(run, as_json=as_json)
