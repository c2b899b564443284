"""`lightmeter plan`: check a manifest and estimate the cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from lightmeter.api.runs import stream_screened_plan
from lightmeter.cli.options import (
    analysis_options,
    execution_options,
    executor_options,
    explicit_options,
    json_option,
    manifest_options,
    price_limit_options,
)
from lightmeter.cli.output import print_json, show_plan
from lightmeter.cli.price_comparison import CheckedPlan, PriceCheck
from lightmeter.cli.progress import run_with_progress
from lightmeter.engine.session import prepare_folder
from lightmeter.errors import UsageError
from lightmeter.options import make_options
from lightmeter.planning.comparison.comparison_text import plan_as_markdown
from lightmeter.scale_out.check_manifest import split_scale_out
from lightmeter.settings import read_settings

_TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")


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
@executor_options
@price_limit_options
@click.option("--by", metavar="COLUMN", help="Also show the cost by the values of this manifest column (or kind).")
@click.option(
    "--format",
    "formats",
    type=click.Choice(["text", "markdown", "json", *_TABLE_FORMATS]),
    multiple=True,
    help="How to print the plan: text (default), markdown for a pull request, json. Or the format of the run's tables: "
    "parquet (default), delta, iceberg. May be given once for each.",
)
@json_option
def plan_command(
    manifest: str, save: Path | None, by: str | None, formats: tuple[str, ...], as_json: bool, **options: Any
) -> int:
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
    --executor dask or ray lets the workers of a cluster check the rows and run that back end, as in `lightmeter check`.

    A saved plan holds the decision, reason and price of every row; `run --plan` follows it without checking rows
    again, and refuses if the manifest has changed. For many rows a second file is written beside it.

    --compare reads a plan that was saved earlier, also one of a changed manifest, and shows what differs: rows added,
    removed and changed, credits by back end and feature, prices, options. Each price is exact, a bound (a range that
    the charge cannot leave), or an estimate, if the service has not confirmed the prices. With --fail-above or
    --fail-on-rise, the command exits with 3 if the upper price is above the limit, whatever --budget is; the plan is
    still printed and saved.

    \b
    Examples:
      lightmeter plan photos.csv --features tags,nsfw
      lightmeter plan photos.csv --compare old.json --fail-on-rise 10% --format markdown
      lightmeter plan 'photos/**/*.jpg' --features tags --budget 500 --save plan.json
      lightmeter plan photos.csv --screen nsfwjs --screen-rule 'nsfw.severity BETWEEN .1 AND .9'
      lightmeter run --plan plan.json --out out/
    """
    printed, options["table_format"] = _split_formats(formats)
    printed = "json" if as_json else printed
    check = PriceCheck.from_options(options)
    if save is not None:
        prepare_folder(save.absolute().parent)
        if save.is_dir():
            raise UsageError(
                f"{save} is a folder, so the plan cannot be saved there.", hint="Name a file: --save plan.json"
            )
    scale_out, given = split_scale_out(explicit_options(options))
    plan = run_with_progress(
        lambda _: stream_screened_plan(manifest, make_options(**given), read_settings(), scale_out=scale_out),
        cancel_on_signal=True,
    )
    costs = None if by is None else plan.cost_by(by)
    show_plan(plan, err=printed != "text")
    if save is not None:
        plan.save(save)
        click.echo(f"saved: {save}", err=printed != "text")
    checked = check.apply(plan, costs)
    _print_checked_plan(checked, printed)
    checked.raise_if_too_expensive()
    return 0


def _split_formats(formats: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the format of the printed plan (by default `text`) and the format of the tables (by default None).

    `formats` are the values of `--format`: at most one for each of the two.
    """
    tables = [name for name in formats if name in _TABLE_FORMATS]
    printed = [name for name in formats if name not in _TABLE_FORMATS]
    if len(tables) > 1 or len(printed) > 1:
        raise UsageError(f"--format is given twice: {', '.join(formats)}.", hint="Choose one of them.")
    return (printed or ["text"])[0], tables[0] if tables else None


def _print_checked_plan(checked: CheckedPlan, printed: str) -> None:
    """Print how the plan in `checked` differs from a saved one, and its cost by a manifest column, if asked for.

    `printed` is the format of the plan. With `text`, both go to standard output, below the plan, which is already
    printed. With `markdown` or `json`, both go to standard error, and the plan in that format to standard output.
    """
    for text in checked.lines():
        click.echo(text, err=printed != "text")
    if printed == "markdown":
        click.echo(plan_as_markdown(checked.plan, checked.comparison, checked.by, checked.exceeded), nl=False)
    elif printed == "json":
        print_json(checked.to_dict())
