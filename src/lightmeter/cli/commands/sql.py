"""`lightmeter sql`: DuckDB over the tables."""

from __future__ import annotations

import sys
from typing import Final

import click
from rich.console import Console

from lightmeter.api.run_result import must_have_tables
from lightmeter.cli.table_format import as_csv, as_json, as_markdown, format_table
from lightmeter.tables import queries

__all__ = ["command"]

_FORMS: Final = {"csv": as_csv, "json": as_json, "markdown": as_markdown}
_PLAIN_WIDTH: Final = 200
"""Of a table that goes elsewhere than to a terminal."""


@click.command("sql")
@click.argument("where", metavar="DIR")
@click.argument("query")
@click.option(
    "--output",
    "--format",
    "form",
    type=click.Choice(["table", *_FORMS]),
    help="How to print the answer (table on a terminal, else csv).",
)
def command(where: str, query: str, form: str | None) -> int:
    """Ask the tables of the run in DIR, in DuckDB's SQL; DIR may be a shared place that `rebuild --to` has written.

    Views: assets, tags, colors, nsfw, descriptions, faces, texts, brands, embeddings, errors, requests, prechecks.
    Rows of single video frames have `frame` set; those of whole videos and images do not.

    A table is cut to the terminal: long cells, columns that do not fit, and rows beyond the first 60. What is not
    shown is said on standard error; csv, json and markdown print all of it.

    \b
    Examples:
      lightmeter sql out/ "SELECT name, count(*) FROM tags WHERE frame IS NULL GROUP BY 1 ORDER BY 2 DESC"
      lightmeter sql out/ "SELECT * FROM assets" --output json
      lightmeter sql s3://lake/photos "SELECT status, count(*) FROM assets GROUP BY 1"
    """
    must_have_tables(where)
    answer = queries.sql(where, query)
    form = form or ("table" if sys.stdout.isatty() else "csv")
    if form in _FORMS:
        for text in _FORMS[form](answer):
            sys.stdout.write(text)
        return 0
    console = Console()
    laid_out = format_table(answer, console.width if console.is_terminal else _PLAIN_WIDTH)
    for line in laid_out.lines:
        click.echo(line)
    click.echo(laid_out.note, err=True)
    return 0
