"""`lightmeter plan`: check a manifest and estimate the cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lightmeter.api.runs import stream_screened_plan
from lightmeter.cli.options import analysis_options, execution_options, explicit_options, json_option, manifest_options
from lightmeter.cli.output import print_json, show_plan
from lightmeter.cli.progress import run_with_progress
from lightmeter.engine.session import prepare_folder
from lightmeter.errors import UsageError
from lightmeter.options import make_options
from lightmeter.settings import read_settings


@click.command("plan")
@click.argument("manifest")
@manifest_options
@analysis_options
@execution_options
@click.option("--budget", metavar="CREDITS", type=int, help="Hard cap of a run of this plan.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="Write the plan to this file, for run --plan.",
)
@json_option
def plan_command(manifest: str, save: Path | None, as_json: bool, **options: Any) -> int:
    """Read MANIFEST, check every row, and estimate what analyzing it would cost. Spends nothing.

    If a service is named, its balance and back ends are requested first, which is free. Without a key, or if the
    service cannot be reached, the plan states this and continues without them; a wrong key is an error.

    MANIFEST is CSV, TSV, JSONL, a JSON array, Parquet or text (one address a line), also .gz; a path, s3://… (or
    gs://, az://, hf://), or - for standard input. Its column `url` or `path` holds what to analyze; `id` and `kind` are
    optional; --url-column, --id-column and --kind-column name other columns. All other columns are copied to the
    assets table. MANIFEST may also be a folder of pictures and videos, of Parquet files, or of WebDataset tars, or a
    glob in quotes for one of them ('shard-{000..099}.tar', s3://bucket/day=*/*.parquet), or one picture, video or tar.
    A key in its URI (s3://KEY:SECRET@…) is neither stored nor shown.

    With --screen, a local back end analyzes all rows before the price is computed, which may take hours for a large
    manifest; the plan shows how many rows pass and what that saves. A stopped command continues where it stopped.

    A saved plan holds the decision, reason and price of every row; `run --plan` follows it without checking rows
    again, and refuses if the manifest has changed. For many rows a second file is written beside it.

    \b
    Examples:
      lightmeter plan photos.csv --features tags,nsfw
      lightmeter plan 'photos/**/*.jpg' --features tags --budget 500 --save plan.json
      lightmeter plan photos.csv --screen nsfwjs --screen-rule 'nsfw.severity BETWEEN .1 AND .9'
      lightmeter run --plan plan.json --out out/
    """
    if save is not None:
        prepare_folder(save.absolute().parent)
        if save.is_dir():
            raise UsageError(
                f"{save} is a folder, so the plan cannot be saved there.", hint="Name a file: --save plan.json"
            )
    plan = run_with_progress(
        lambda _: stream_screened_plan(manifest, make_options(**explicit_options(options)), read_settings()),
        cancel_on_signal=True,
    )
    show_plan(plan, err=as_json)
    if save is not None:
        plan.save(save)
        click.echo(f"saved: {save}", err=as_json)
    if as_json:
        print_json(plan.to_dict())
    return 0
