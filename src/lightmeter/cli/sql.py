"""`lightmeter sql`: DuckDB over the tables."""

from __future__ import annotations

import csv
import sys

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from lightmeter.pipeline.result import must_have_tables
from lightmeter.tables import queries

__all__ = ["command"]


@click.command("sql")
@click.argument("where", metavar="DIR")
@click.argument("query")
@click.option("--format", "style", type=click.Choice(["table", "csv"]), help="Table on a terminal, else csv.")
def command(where: str, query: str, style: str | None) -> int:
    """Ask the tables of the run in DIR, in DuckDB's SQL; DIR may be a shared place that `rebuild --to` has written.

    Views: assets, tags, colors, nsfw, descriptions, faces, texts, brands, errors, requests, prechecks.
    Rows of single video frames have `frame` set; those of whole videos and images do not.

    \b
    Examples:
      lightmeter sql out/ "SELECT name, count(*) FROM tags WHERE frame IS NULL GROUP BY 1 ORDER BY 2 DESC"
      lightmeter sql out/ "SELECT url, severity FROM nsfw WHERE severity > 0.5 ORDER BY severity DESC"
      lightmeter sql s3://lake/photos "SELECT status, count(*) FROM assets GROUP BY 1"
    """
    must_have_tables(where)
    answer = queries.sql(where, query)
    if (style or ("table" if sys.stdout.isatty() else "csv")) == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in answer.columns), strict=True))
        return 0
    _print_table(answer)
    return 0


def _print_table(answer: pa.Table) -> None:
    table = Table(box=None, pad_edge=False)
    for name, column in zip(answer.column_names, answer.columns, strict=True):
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in answer.to_pylist():
        table.add_row(*(_cell(value) for value in row.values()))
    Console(highlight=False).print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
