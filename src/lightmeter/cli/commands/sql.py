"""`lightmeter sql`: query the tables with DuckDB."""

from __future__ import annotations

import sys
from typing import Final

import click
from rich.console import Console

from lightmeter.api.run_result import must_have_tables
from lightmeter.cli.table_format import as_csv, as_json, as_markdown, format_table
from lightmeter.tables.query import duckdb_query

_FORMATTERS: Final = {"csv": as_csv, "json": as_json, "markdown": as_markdown}
_PLAIN_WIDTH: Final = 200
"""Columns of a table that goes to a file or a pipe."""


@click.command("sql")
@click.argument("where", metavar="DIR")
@click.argument("query")
@click.option(
    "--output",
    "--format",
    "output_format",
    type=click.Choice(["table", *_FORMATTERS]),
    help="Output format (table on a terminal, else csv).",
)
def command(where: str, query: str, output_format: str | None) -> int:
    """Query the tables of the run in DIR with DuckDB's SQL; DIR may be a location that `rebuild --to` has written.

    Views: assets, tags, colors, nsfw, descriptions, faces, texts, brands, embeddings, errors, requests, prechecks.
    Rows of single video frames have `frame` set; in rows of whole videos and images it is null.

    On a terminal, long cells are cut, and columns that do not fit and rows after the first 60 are left out, with a
    note on standard error. csv, json and markdown print everything.

    \b
    Examples:
      lightmeter sql out/ "SELECT name, count(*) FROM tags WHERE frame IS NULL GROUP BY 1 ORDER BY 2 DESC"
      lightmeter sql out/ "SELECT * FROM assets" --output json
      lightmeter sql s3://lake/photos "SELECT status, count(*) FROM assets GROUP BY 1"
    """
    must_have_tables(where)
    answer = duckdb_query.sql(where, query)
    output_format = output_format or ("table" if sys.stdout.isatty() else "csv")
    if output_format in _FORMATTERS:
        for text in _FORMATTERS[output_format](answer):
            sys.stdout.write(text)
        return 0
    console = Console()
    formatted = format_table(answer, console.width if console.is_terminal else _PLAIN_WIDTH)
    for line in formatted.lines:
        click.echo(line)
    click.echo(formatted.note, err=True)
    return 0
