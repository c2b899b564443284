"""`lightmeter similar`: find pictures similar to a picture."""

from __future__ import annotations

import click
from rich.console import Console

from lightmeter.api.run_result import Tables
from lightmeter.cli.options import json_option
from lightmeter.cli.output import PLAIN_WIDTH, print_json
from lightmeter.cli.table_format import format_table


@click.command("similar")
@click.argument("where", metavar="DIR")
@click.argument("item")
@click.option(
    "--most", metavar="N", type=click.IntRange(1), default=10, show_default=True, help="Maximum number of rows."
)
@click.option(
    "--model", metavar="NAME", help="Model whose embeddings are compared, if ITEM has embeddings of several models."
)
@json_option
def command(where: str, item: str, most: int, model: str | None, *, as_json: bool) -> int:
    """Show the pictures of the run in DIR that are most similar to ITEM: an item_id, a URL or a path.

    Needs a run with `--features embeddings`. Similarity is the cosine of the angle between two embeddings, at most 1.
    A video counts by its most similar frame. Sends nothing, costs nothing.

    \b
    Examples:
      lightmeter similar out/ coffee
      lightmeter similar out/ media/coffee.jpg --most 3 --json
      lightmeter similar s3://lake/photos coffee
    """
    found = Tables(where).similar(item, most=most, model=model)
    console = Console()
    for line in format_table(found, console.width if console.is_terminal else PLAIN_WIDTH).lines:
        click.echo(line)
    if as_json:
        print_json({"item": item, "similar": found.to_pylist()})
    return 0
