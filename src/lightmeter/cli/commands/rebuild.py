"""`lightmeter rebuild`: the tables again, from the journal, here or in a shared place."""

from __future__ import annotations

from pathlib import Path

import click

from lightmeter.cpu_count import process_cpu_count
from lightmeter.export.export_tables import export_tables
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.delta import write_delta
from lightmeter.tables.remote_write import publish
from lightmeter.tables.uris import redact_uri

__all__ = ["command"]


@click.command("rebuild")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--to", "place", metavar="PLACE", help="Put the tables there too: s3://bucket/prefix, or a folder's URI.")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    help="What is put there; delta without --to goes to DIR/delta.",
)
def command(folder: Path, place: str | None, table_format: str) -> int:
    """Write the tables of the runs in DIR anew from their journals. Sends nothing, costs nothing.

    \b
    Examples:
      lightmeter rebuild out/
      lightmeter rebuild out/ --to s3://lake/photos
      lightmeter rebuild out/ --to s3://lake/photos --format delta
    """
    for table, rows in export_tables(folder, whole=True, processes=process_cpu_count()).items():
        click.echo(f"{rows:>10}  {folder / 'tables' / table}")
    if table_format == "delta":
        where = place or str(folder / "delta")
        for table, version in write_delta(Dataset(folder), where).items():
            click.echo(f"version {version:>2}  {redact_uri(where)}/{table}")
    elif place is not None:
        for path in publish(Dataset(folder), place).values():
            click.echo(f" published  {path}")
    return 0
