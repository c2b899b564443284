"""`lightmeter sql` and `lightmeter similar`: query the tables of a run."""

from __future__ import annotations

import sys
from typing import Final

import click

from lightmeter.api.run_result import Tables, must_have_tables
from lightmeter.cli.options import LOCAL_PATH_OR_URI, json_option
from lightmeter.cli.print_results import make_console, print_json
from lightmeter.cli.table_format import as_csv, as_json, as_markdown, format_table
from lightmeter.tables.query import duckdb_query
from lightmeter.terminal import write_data

_FORMATTERS: Final = {"csv": as_csv, "json": as_json, "markdown": as_markdown}


@click.command("sql")
@click.argument("where", metavar="DIR", type=LOCAL_PATH_OR_URI)
@click.argument("query")
@click.option(
    "--output",
    "--format",
    "output_format",
    type=click.Choice(["table", *_FORMATTERS]),
    help="Output format (table on a terminal, else csv).",
)
def sql_command(where: str, query: str, output_format: str | None) -> int:
    """Query the tables of the run in DIR with DuckDB's SQL. DIR may also be a location written by `rebuild --to`.

    Views: assets, tags, colors, nsfw, descriptions, faces, texts, brands, embeddings, errors, requests, prechecks, and
    duplicates with the clusters of duplicates. The column `frame` is
    set in rows about single video frames. It is null in rows about images and whole videos. If the run used --video
    frames, a video has only rows about frames.

    A terminal shows the first 60 rows and the columns that fit, with long cells cut; a note on standard error says what
    is left out. The formats csv, json and markdown print everything.

    \b
    Examples:
      lightmeter sql out/ "SELECT name, count(DISTINCT item_id) FROM tags GROUP BY 1 ORDER BY 2 DESC"
      lightmeter sql out/ "SELECT * FROM assets" --output json
      lightmeter sql out/ "SELECT finding, severity, count(*) FROM prechecks GROUP BY ALL"
      lightmeter sql s3://lake/photos "SELECT status, count(*) FROM assets GROUP BY 1"
    """
    must_have_tables(where)
    answer = duckdb_query.sql(where, query)
    output_format = output_format or ("table" if sys.stdout.isatty() else "csv")
    if output_format in _FORMATTERS:
        for text in _FORMATTERS[output_format](answer):
            write_data(text)
        return 0
    lines, note = format_table(answer, make_console().width)
    click.echo("\n".join(lines))
    click.echo(note, err=True)
    return 0


@click.command("similar")
@click.argument("where", metavar="DIR", type=LOCAL_PATH_OR_URI)
@click.argument("item")
@click.option(
    "--most", metavar="N", type=click.IntRange(1), default=10, show_default=True, help="Maximum number of rows."
)
@click.option(
    "--model", metavar="NAME", help="Model whose embeddings are compared, if ITEM has embeddings of several models."
)
@json_option
def similar_command(where: str, item: str, most: int, model: str | None, *, as_json: bool) -> int:
    """Show the pictures of the run in DIR that are most similar to ITEM: an item_id, a URL or a path.

    Needs a run with `--features embeddings`. Similarity is the cosine of the angle between two embeddings, at most 1.
    The similarity of a video is that of its most similar frame. Sends nothing, costs nothing.

    \b
    Examples:
      lightmeter similar out/ coffee
      lightmeter similar out/ media/coffee.jpg --most 3 --json
      lightmeter similar s3://lake/photos coffee
    """
    found = Tables(where).similar(item, most=most, model=model)
    lines, _ = format_table(found, make_console().width)
    click.echo("\n".join(lines))
    if as_json:
        print_json({"item": item, "similar": found.to_pylist()})
    return 0
