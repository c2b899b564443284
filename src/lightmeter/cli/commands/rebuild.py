"""`lightmeter rebuild` and `lightmeter compact`: write the tables again, or merge the files of each table."""

from __future__ import annotations

from pathlib import Path

import click

from lightmeter.api.run_result import must_have_tables
from lightmeter.cli.options import LOCAL_PATH, LOCAL_PATH_OR_URI, executor_option
from lightmeter.cpu_count import process_cpu_count
from lightmeter.export.export_tables import export_tables
from lightmeter.options import TABLE_FORMATS, Executor, TableFormat
from lightmeter.scale_out.executors import open_executor
from lightmeter.tables.compaction import compact
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.remote.table_formats import write_table_format
from lightmeter.tables.remote.uris import uri_name
from lightmeter.tables.remote.write import publish


@click.command("rebuild")
@click.argument("folder", metavar="DIR", type=LOCAL_PATH)
@click.option(
    "--to",
    "target",
    metavar="URI",
    type=LOCAL_PATH_OR_URI,
    help="Also write the tables to a folder's URI: s3://, gs://, az:// or hf://.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(TABLE_FORMATS),
    default="parquet",
    help="Format of the tables in --to; without --to, delta goes to DIR/delta and iceberg to DIR/iceberg.",
)
@executor_option
def rebuild_command(folder: Path, target: str | None, table_format: TableFormat, executor: Executor | None) -> int:
    """Write the tables of the runs in DIR again from their journals. Sends nothing, costs nothing.

    \b
    Examples:
      lightmeter rebuild out/
      lightmeter rebuild out/ --to s3://lake/photos
      lightmeter rebuild out/ --to hf://datasets/me/photos
      lightmeter rebuild out/ --to s3://lake/photos --format delta
      lightmeter rebuild out/ --executor dask

    With --executor, the workers of a cluster must reach DIR by the same path. The cluster is the one in
    DASK_SCHEDULER_ADDRESS or RAY_ADDRESS; without this variable, workers are started on this machine.
    """
    for table, rows in _export(folder, executor or "local").items():
        click.echo(f"{rows:>10}  {folder / 'tables' / table}")
    if table_format != "parquet":
        location = target or str(folder / table_format)
        for table, version in write_table_format(Dataset(folder), table_format, location).items():
            click.echo(f"version {version:>2}  {uri_name(location)}/{table}")
    elif target is not None:
        for path in publish(Dataset(folder), target).values():
            click.echo(f" published  {path}")
    return 0


def _export(folder: Path, executor: Executor) -> dict[str, int]:
    """Write all tables of the runs in `folder` again, and return table → number of rows.

    `executor` is where the tables are written: `local` (this process), or the kind of a cluster.
    """
    if executor == "local":
        return export_tables(folder, rewrite_all=True, processes=process_cpu_count())
    with open_executor(executor) as cluster:
        return export_tables(folder, rewrite_all=True, processes=cluster.parallel_shards, map_shards=cluster.map)


@click.command("compact")
@click.argument("folder", metavar="DIR", type=LOCAL_PATH)
def compact_command(folder: Path) -> int:
    """Merge the files of each table in DIR into one file per table. Changes no row, sends nothing, costs nothing.

    Programs may read the tables at the same time: they see either the old files or the new file.
    """
    must_have_tables(folder)
    for merged in compact(Dataset(folder)):
        if merged.parts_before:
            parts = f"{merged.parts_before} → {merged.parts_after} parts"
            click.echo(f"{merged.rows:>10}  {parts:>16}  {folder / 'tables' / merged.table}")
    return 0
