"""`lightmeter resume`: go on after a stop, a crash, or a raised budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lightmeter.api.runs import stream_resume
from lightmeter.cli.commands.run import print_summary_on_error, report_outcome
from lightmeter.cli.options import accept_journal_option, execution_options, explicit_options, json_option
from lightmeter.cli.progress_runner import run_with_progress

__all__ = ["command"]


@click.command("resume")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--budget", metavar="CREDITS", type=int, help="A new cap for the whole run.")
@click.option("--base-url", metavar="URL", help="Another address of the same service.")
@click.option(
    "--pay-again",
    metavar="CREDITS",
    type=click.IntRange(min=0),
    help="Send again what is in doubt, for so many credits at most, and perhaps pay for it twice (0).",
)
@accept_journal_option
@execution_options
@json_option
def command(folder: Path, as_json: bool, **options: Any) -> int:
    """Go on with the run in DIR.

    Answers that are waiting at the service are collected first, requests whose end is unknown are resolved,
    and only then anything is spent. Rows that were answered are never asked for again.

    A request whose answer was lost is sent again by itself only where the balance proves that it was not charged.
    What stays in doubt is sent again with --pay-again; what it may have cost already stays held, so that the
    budget holds whatever became of it.

    A journal that lost its log, was restored from a backup or was copied does not know all that was paid. Where
    this machine has seen it further, or the balance tells, nothing is sent until you put the newer one back, or say
    --accept-journal: the run then goes on from what it knows, under a new run id.

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
