"""`lightmeter check`: checks the rows of a manifest, and sends nothing to a service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from lightmeter.api.check import CheckReport, stream_check_report
from lightmeter.cli.options import LOCAL_PATH, check_options, executor_options, explicit_options, json_option
from lightmeter.cli.print_results import print_json, show_check
from lightmeter.cli.progress import run_with_progress
from lightmeter.errors import SettingsError
from lightmeter.extras import import_extra
from lightmeter.options import make_options
from lightmeter.scale_out.check_manifest import split_scale_out


@click.command("check")
@click.argument("manifest")
@click.option("--out", type=LOCAL_PATH, help="Folder for the tables and the report page.")
@check_options
@executor_options
@json_option
def check_command(manifest: str, out: Path | None, as_json: bool, **options: Any) -> int:
    """Read MANIFEST and check every row, as `lightmeter plan` does, but without prices.

    Needs no key and no service. Only the URLs of MANIFEST are requested; the README lists these requests and how to
    turn them off. Prints how many rows can be sent, and the findings by check and severity with an example of each. A
    row in which a check of the last three days found no error is not checked again; `plan` and `run` use these results
    too.

    MANIFEST is a table, a folder, a glob in quotes, or one picture or video: see `lightmeter plan --help`.

    With --executor dask or ray, the workers of a cluster check shards (parts) of the rows; a run still sends rows from
    one process. The cluster is the one in DASK_SCHEDULER_ADDRESS or RAY_ADDRESS; without this variable, workers are
    started on this machine. If a worker dies, its shard is checked again. Workers on other machines need --shard-dir,
    and must reach files in MANIFEST by the same paths.

    --out writes the tables `assets` and `prechecks` and the page report.html. `lightmeter sql`, `lightmeter report` and
    `lightmeter run MANIFEST --out DIR` accept that folder.

    \b
    Examples:
      lightmeter check photos.csv
      lightmeter check photos.csv --out out/checked
      lightmeter check photos.csv --executor dask --shard-dir s3://lake/tmp
      lightmeter sql out/checked "SELECT * FROM prechecks WHERE severity = 'error'"
    """
    scale_out, given = split_scale_out(explicit_options(options))
    checked: CheckReport = run_with_progress(
        lambda _: stream_check_report(manifest, out, make_options(**given), scale_out), cancel_on_signal=True
    )
    show_check(checked, err=as_json)
    if out is not None:
        click.echo(_write_page(out), err=as_json)
    if as_json:
        print_json(checked.to_dict())
    return 0


def _write_page(out: Path) -> str:
    """Write the report page into an output folder. Return a line to print: the page's path, or why there is no page."""
    try:
        page = import_extra("lightmeter.html_report.page", "report", "The report page")
    except SettingsError as error:
        return f"note: {error}"
    return f"report: {asyncio.run(page.report(out))}"
