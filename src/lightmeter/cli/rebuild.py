"""`lightmeter rebuild`: the tables again, from the journal."""

from __future__ import annotations

from pathlib import Path

import click

from lightmeter.pipeline.export import export

__all__ = ["command"]


@click.command("rebuild")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def command(folder: Path) -> int:
    """Write the tables of the run in DIR anew from its journal. Sends nothing, costs nothing."""
    for table, rows in export(folder, whole=True).items():
        click.echo(f"{rows:>10}  {folder / 'tables' / table}")
    return 0
