"""`lightmeter resume`: continue a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lightmeter.api.runs import stream_resume
from lightmeter.cli.commands.run import print_summary_on_error, report_outcome
from lightmeter.cli.options import accept_journal_option, execution_options, explicit_options, json_option
from lightmeter.cli.progress import run_with_progress


@click.command("resume")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--budget", metavar="CREDITS", type=int, help="New hard cap of the whole run.")
@click.option("--base-url", metavar="URL", help="New URL of the same service.")
@click.option(
    "--pay-again",
    metavar="CREDITS",
    type=click.IntRange(min=0),
    help="Maximum credits for sending requests in doubt again, which may charge them twice (0).",
)
@accept_journal_option
@execution_options
@json_option
def command(folder: Path, as_json: bool, **options: Any) -> int:
    """Continue the run in DIR after a stop, a crash or a raised budget.

    First, answers that are ready at the service are collected, and requests with an unknown outcome are resolved;
    only then are new requests sent. Answered rows are never requested again.

    A request whose answer was lost is sent again only if the balance proves that it was not charged. Other requests
    in doubt are sent again with --pay-again; their possible charge stays held, so that the budget is never exceeded.

    A journal that lost its log, was restored from a backup or was copied does not know all charges. If this machine
    or the balance shows that, nothing is sent until you restore the newer journal, or use --accept-journal: the run
    then continues from the old journal, under a new run id.

    \b
    Examples:
      lightmeter resume out/ --budget 1000
      lightmeter resume out/ --pay-again 5
    """
    changes = explicit_options(options)
    with print_summary_on_error(folder, as_json=as_json):
        return report_outcome(
            run_with_progress(lambda stop: stream_resume(folder, stop=stop, **changes)), as_json=as_json
        )
