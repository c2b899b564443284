"""`lightmeter report`: writes an HTML page about a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from lightmeter.cli.options import LOCAL_PATH
from lightmeter.html_report.page import report


@click.command("report")
@click.argument("folder", metavar="DIR", type=LOCAL_PATH)
@click.option("--by", metavar="COLUMN", help="Manifest column that groups palettes and costs (kind).")
@click.option("--fetch-thumbnails", is_flag=True, help="Download pictures that are not on this machine.")
@click.option("--thumbnails", type=click.IntRange(0, 200), default=24, help="Maximum number of pictures to show (24).")
def report_command(folder: Path, by: str | None, fetch_thumbnails: bool, thumbnails: int) -> int:
    """Write DIR/report.html: rows, credits, pictures, tags, colors, moderation, errors and time on one page.

    The page is self-contained: it loads nothing from elsewhere, needs no script, and can be printed. Pictures that are
    likely unsafe are blurred until the reader opens them. The command sends nothing to the service and costs nothing.
    The run may still be in progress.

    \b
    Examples:
      lightmeter report out/
      lightmeter report out/ --by shop --fetch-thumbnails
    """
    click.echo(asyncio.run(report(folder, by=by, fetch_thumbnails=fetch_thumbnails, thumbnails=thumbnails)))
    return 0
