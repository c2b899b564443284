"""`lightmeter status` and `lightmeter statement`: print the rows and the credits of a run."""

from __future__ import annotations

from pathlib import Path

import click

from lightmeter.api.run_result import Run
from lightmeter.cli.options import LOCAL_PATH, json_option
from lightmeter.cli.print_results import print_json, show_summary
from lightmeter.money.statement import read_statement, requests_frame
from lightmeter.terminal import write_data


@click.command("status")
@click.argument("folder", metavar="DIR", type=LOCAL_PATH)
@json_option
def status_command(folder: Path, as_json: bool) -> int:
    """Count the rows of the run in DIR by status, with reasons. The run may still be in progress.

    Every row of the manifest is in exactly one count; the command fails if the counts do not add up. The exit code is
    that of the run: 3 if some rows are over budget; otherwise 1 if some rows failed, are in doubt or pending, or if the
    manifest was not read to its end; otherwise 0.
    """
    summary = show_summary(Run(folder), err=as_json)
    if as_json:
        print_json(summary.to_dict())
    return summary.exit_code


@click.command("statement")
@click.argument("folder", metavar="DIR", type=LOCAL_PATH)
@click.option("--table", "as_table", is_flag=True, help="Print a row per request instead, as CSV.")
@json_option
def statement_command(folder: Path, as_table: bool, as_json: bool) -> int:
    """Account for the credits of the run in DIR: predicted, paid, held and saved, with the balances. Spends nothing.

    Paid credits are split by back end and feature if the price table explains them. If credits left the account and no
    answer explains them, they are shown as a gap, with the requests that may have been charged. Nothing is guessed.

    \b
    Examples:
      lightmeter statement out/
      lightmeter statement out/ --table > requests.csv
    """
    if as_table:
        write_data(requests_frame(folder).to_csv(index=False))
        return 0
    statement = read_statement(folder)
    for line in statement.lines():
        click.echo(line, err=as_json)
    if as_json:
        print_json(statement.to_dict())
    return 0
