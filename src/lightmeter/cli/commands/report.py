"""`lightmeter report`: one HTML page about a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from lightmeter.html_report.render import report

__all__ = ["command"]


@click.command("report")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--by", metavar="COLUMN", help="Column of the manifest that groups palettes and costs (kind).")
@click.option("--fetch-thumbnails", is_flag=True, help="Fetch pictures that are not on this machine.")
@click.option("--thumbnails", type=click.IntRange(0, 200), default=24, help="Most pictures to show (24).")
def command(folder: Path, by: str | None, fetch_thumbnails: bool, thumbnails: int) -> int:
    """Write DIR/report.html: rows, credits, pictures, tags, colours, moderation, errors and time on one page.

    The page stands by itself: it asks nothing of any other place, needs no script, and prints well. Pictures that
    are likely unsafe are blurred until they are opened. Sends nothing to the service, costs nothing; also while the
    run goes on.

    \b
    Examples:
      lightmeter report out/
      lightmeter report out/ --by shop --fetch-thumbnails
    """
    click.echo(asyncio.run(report(folder, by=by, fetch_thumbnails=fetch_thumbnails, thumbnails=thumbnails)))
    return 0
