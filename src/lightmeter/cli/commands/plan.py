"""`lightmeter plan`: what would it cost?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lightmeter.cli.options import analysis_options, execution_options, explicit_options, json_option, manifest_options
from lightmeter.cli.progress_runner import run_with_progress
from lightmeter.cli.terminal import print_json, show_plan
from lightmeter.errors import UsageError
from lightmeter.options import make_options
from lightmeter.planning.build import stream_plan
from lightmeter.planning.output_folder import prepare_folder
from lightmeter.settings import read_settings

__all__ = ["command"]


@click.command("plan")
@click.argument("manifest")
@manifest_options
@analysis_options
@execution_options
@click.option("--budget", metavar="CREDITS", type=int, help="The cap a run of this plan will have.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the plan here, for run --plan.")
@json_option
def command(manifest: str, save: Path | None, as_json: bool, **options: Any) -> int:
    """Read MANIFEST, check every row, and say what analysing it would cost. Spends nothing.

    A named service is asked first for the balance and its back ends, which is free. Without a key, or while
    the service cannot be reached, the plan says so and goes on without them; a wrong key is an error.

    MANIFEST is CSV, TSV, JSONL, a JSON array, Parquet or text (one address a line), also .gz; a path, s3://… (or
    gs://, az://, hf://), or - for standard input. Its column `url` or `path` says what to analyse; `id` and `kind` are
    optional; --url-column, --id-column and --kind-column name other ones. All other columns travel unchanged into the
    assets table. MANIFEST may also be a folder of pictures and videos, or of Parquet files, or a glob in quotes for
    either, or one picture or video.

    A saved plan says what becomes of every row, why, and for how much; `run --plan` does exactly that, looks at
    no row again, and refuses if the manifest changed. With many rows a second file is written beside it.

    \b
    Examples:
      lightmeter plan photos.csv --features tags,nsfw
      lightmeter plan 'photos/**/*.jpg' --features tags --budget 500 --save plan.json
      lightmeter run --plan plan.json --out out/
    """
    if save is not None:
        prepare_folder(save.absolute().parent)
        if save.is_dir():
            raise UsageError(
                f"{save} is a folder, so no plan can be saved there.", hint="Name a file: --save plan.json"
            )
    made = run_with_progress(
        lambda _: stream_plan(manifest, make_options(**explicit_options(options)), read_settings()), at_once=True
    )
    show_plan(made, err=as_json)
    if save is not None:
        made.save(save)
        click.echo(f"saved: {save}", err=as_json)
    if as_json:
        print_json(made.to_dict())
    return 0
