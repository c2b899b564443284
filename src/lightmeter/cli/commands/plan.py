"""`lightmeter plan`: checks a manifest and estimates the cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from lightmeter.api.runs import stream_screened_plan
from lightmeter.cli.options import (
    LOCAL_PATH,
    analysis_options,
    execution_options,
    executor_options,
    explicit_options,
    json_option,
    manifest_options,
    price_limit_options,
    sample_options,
)
from lightmeter.cli.price_comparison import CheckedPlan, PriceCheck
from lightmeter.cli.print_results import print_json, show_plan
from lightmeter.cli.progress import run_with_progress
from lightmeter.errors import UsageError
from lightmeter.options import make_options
from lightmeter.planning.comparison.comparison_text import plan_as_markdown
from lightmeter.run_session.session import prepare_folder
from lightmeter.scale_out.check_manifest import split_scale_out
from lightmeter.settings import read_settings

_TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")


@click.command("plan")
@click.argument("manifest")
@manifest_options
@analysis_options
@sample_options
@execution_options
@click.option("--budget", metavar="CREDITS", type=int, help="Hard cap of a run of this plan.")
@click.option(
    "--save",
    type=LOCAL_PATH,
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

    If a service is configured, the account's balance and the service's back ends are requested first, which is free.
    Without a key, or if the service cannot be reached, the plan says so and is made without them. A wrong key is an
    error.

    MANIFEST is a file in one of the formats CSV, TSV, JSONL, JSON array, Parquet or text (one address per line), also
    compressed (.gz). Give its path, its URI (s3://…, gs://…, az://…, hf://…), or - for standard input. The column `url`
    or `path` holds what to analyze; the columns `id` and `kind` are optional. If these columns have other names, give
    --url-column, --id-column and --kind-column. All other columns are copied to the assets table. MANIFEST may also be
    a folder of pictures and videos, of Parquet files, or of WebDataset tars; a glob in quotes for such files
    ('shard-{000..099}.tar', 's3://bucket/day=*/*.parquet'); or one picture, video or tar. An access key in the URI
    (s3://KEY:SECRET@…) is neither stored nor shown.

    With --screen, a local back end analyzes all rows before the price is computed, which may take hours for a large
    manifest; the plan shows how many rows pass and what that saves. A stopped command continues where it stopped.
    --executor dask or ray lets the workers of a cluster check the rows and run that back end, as in `lightmeter check`.

    A plan saved with --save holds, for every row, whether it will be sent, the reason and the price. `run --plan`
    follows the saved plan without checking rows again, and refuses if the manifest has changed. For many rows, --save
    writes a second file beside the plan.

    --compare reads a plan that was saved earlier, also for another version of the manifest, and shows what differs:
    rows added, removed and changed, credits by back end and feature, prices, options. Each price is exact, a bound (a
    range that the charge cannot leave), or an estimate, if the service has not confirmed the prices. With --fail-above
    or --fail-on-rise, the command exits with 3 if the upper price is above the limit, whatever --budget is; the plan is
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
        prepare_folder(save.parent)
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
    """Return the format of the printed plan (default `text`), and the format of the run's tables (default None).

    `formats` are the values of `--format`: at most one of `text`, `markdown` and `json` for the plan, and at most one
    of `parquet`, `delta` and `iceberg` for the tables. Raise UsageError if there are two for the plan or two for the
    tables.
    """
    tables = [name for name in formats if name in _TABLE_FORMATS]
    printed = [name for name in formats if name not in _TABLE_FORMATS]
    if len(tables) > 1 or len(printed) > 1:
        raise UsageError(f"--format is given twice: {', '.join(formats)}.", hint="Choose one of them.")
    return (printed or ["text"])[0], tables[0] if tables else None


def _print_checked_plan(checked: CheckedPlan, printed: str) -> None:
    """Print how the plan in `checked` differs from a saved one, and its cost by a manifest column, if asked for.

    `printed` is the format of the plan. With `text`, the plan is already printed; the difference and the cost go to
    standard output below it. With `markdown` or `json`, they go to standard error, and the plan in that format to
    standard output.
    """
    for text in checked.lines():
        click.echo(text, err=printed != "text")
    if printed == "markdown":
        click.echo(plan_as_markdown(checked.plan, checked.comparison, checked.by, checked.exceeded), nl=False)
    elif printed == "json":
        print_json(checked.to_dict())
