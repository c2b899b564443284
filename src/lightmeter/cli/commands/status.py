"""`lightmeter status`: count the rows of a run by status."""

from __future__ import annotations

from pathlib import Path

import click

from lightmeter.api.run_result import Run
from lightmeter.cli.options import json_option
from lightmeter.cli.output import print_json, show_summary


@click.command("status")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
def command(folder: Path, as_json: bool) -> int:
    """Count the rows of the run in DIR by status, with reasons. The run may still be in progress.

    Every row of the manifest is in exactly one count; the command fails if the counts do not add up. The exit code
    is that of the run: 0 all rows are done, 1 some rows failed, are in doubt or pending, 3 over budget.
    """
    summary = show_summary(Run(folder), err=as_json)
    if as_json:
        print_json(summary.to_dict())
    return summary.exit_code
