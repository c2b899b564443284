"""`lightmeter statement`: where every credit went."""

from __future__ import annotations

from pathlib import Path

import click

from lightmeter.cli.options import json_option
from lightmeter.cli.terminal import print_json
from lightmeter.money.statement import read_statement, requests_frame

__all__ = ["command"]


@click.command("statement")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--table", "as_table", is_flag=True, help="Print a row for each request instead, as CSV.")
@json_option
def command(folder: Path, as_table: bool, as_json: bool) -> int:
    """Account for the credits of the run in DIR: predicted, paid, held, saved, and the balances; spends nothing.

    What was paid is told by back end and feature where the price table explains it. Credits that left the account
    with no answer for them are shown as gaps, with the requests that may have taken them; nothing is guessed.

    \b
    Examples:
      lightmeter statement out/
      lightmeter statement out/ --table > requests.csv
    """
    if as_table:
        click.echo(requests_frame(folder).to_csv(index=False), nl=False)
        return 0
    statement = read_statement(folder)
    for line in statement.lines():
        click.echo(line, err=as_json)
    if as_json:
        print_json(statement.to_dict())
    return 0
