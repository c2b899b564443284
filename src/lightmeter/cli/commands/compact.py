"""`lightmeter compact`: merge the files of each table."""

from __future__ import annotations

from pathlib import Path

import click

from lightmeter.api.run_result import must_have_tables
from lightmeter.tables.compaction import compact
from lightmeter.tables.dataset import Dataset


@click.command("compact")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def command(folder: Path) -> int:
    """Merge the files of each table in DIR into one. Changes no row, sends nothing, costs nothing.

    Programs may read the tables meanwhile: they see either the old files or the new one.
    """
    must_have_tables(folder)
    for merged in compact(Dataset(folder)):
        if merged.parts_before:
            parts = f"{merged.parts_before} → {merged.parts_after} parts"
            click.echo(f"{merged.rows:>10}  {parts:>16}  {folder / 'tables' / merged.table}")
    return 0
