"""Command-line options that several commands share, and their conversion to the fields of `Options`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from lightmeter.option_arguments import DEFAULT_SHARD_ROWS, EXECUTORS, TABLE_FORMATS
from lightmeter.options import SKIPPABLE
from lightmeter.paths import local_path
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES, ROLES

F = TypeVar("F", bound=Callable[..., Any])


class _LocalPath(click.Path):
    """Type of options and arguments that name a local file or folder: their value is an absolute `Path`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("an empty path is no path; '.' is this folder.", param, ctx)
        return local_path(value)


class _LocalPathOrUri(click.Path):
    """Type of options and arguments that name a local folder or a URI: their value is a text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in value else str(LOCAL_PATH.convert(value, param, ctx))


LOCAL_PATH: Final = _LocalPath()
LOCAL_PATH_OR_URI: Final = _LocalPathOrUri()


def add_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds `options` to a command; --help lists them in the given order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _batch_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "auto":
        return value
    if value.isdigit() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a whole number above 0 nor 'auto'.", ctx, param)


base_url_option = click.option(
    "--base-url", metavar="URL", help="URL of the service (or LIGHTMETER_BASE_URL); default: the embedded service."
)

video_options = add_options(
    click.option(
        "--capture-interval",
        metavar="SECONDS",
        type=float,
        help="Whole seconds between captured frames of a video (1).",
    ),
    click.option("--max-frames", metavar="N", type=int, help="Maximum number of frames of a video (3); 0: no limit."),
    click.option(
        "--video",
        type=click.Choice(["whole", "frames"]),
        help="Send videos whole, or only those of the captured frames that differ, as images (whole).",
    ),
    click.option(
        "--max-distinct-frames",
        metavar="N",
        type=int,
        help="With --video frames: send at most N frames of a video, those that differ most; 0: no limit (0).",
    ),
)

skip_option = click.option(
    "--skip",
    metavar="A,B",
    help=f"Findings of the checks that keep a row from being sent and paid for: {', '.join(SKIPPABLE)}. "
    "Rows with an error are never sent.",
)

duplicates_option = click.option(
    "--duplicates",
    type=click.Choice(["exact", "near", "off"]),
    help="Rows that share the answer of an earlier row: same URL or content (exact, the default), also images that "
    "look the same (near), or none (off).",
)

analysis_options = add_options(
    base_url_option,
    click.option(
        "--features",
        metavar="A,B",
        help=f"Features to request; default: {', '.join(FEATURES)}. Only if named: {', '.join(EXTRA_FEATURES)}.",
    ),
    click.option("--backends", metavar="A,B", help="Back ends to use; default: those of the service."),
    click.option(
        "--prices",
        metavar="FILE",
        type=LOCAL_PATH,
        help="Price file, JSON or TOML, that overrides the included prices (or LIGHTMETER_PRICES).",
    ),
    click.option("--role", metavar="NAME", help=f"Persona of descriptions: {', '.join(ROLES)}."),
    click.option("--language", metavar="NAME", help="Language of descriptions, by its English name."),
    click.option("--prompt", metavar="TEXT", help="Prompt for descriptions, instead of the role's."),
    click.option(
        "--ask",
        metavar="FILE",
        type=LOCAL_PATH,
        help="File with a question and a JSON schema; the answers become a typed table.",
    ),
    click.option("--tag-score", metavar="0..1", type=float, help="Minimum tag score, sent with each request (0.9)."),
    video_options,
    click.option("--no-precheck", is_flag=True, help="Do not check the rows before they are sent."),
    skip_option,
    duplicates_option,
    click.option("--no-reuse", is_flag=True, help="Do not use answers and checks of earlier runs and plans."),
    click.option(
        "--screen",
        metavar="BACKEND",
        help="Local back end that analyzes all rows first, for free; only rows that match --screen-rule are paid for. "
        "Of a video, it sees the frames that --max-frames and --capture-interval select, at most 3 without a limit; "
        "tags of all scores, whatever --tag-score is.",
    ),
    click.option(
        "--screen-rule",
        metavar="SQL",
        help="Condition over the tables that --screen fills: 'nsfw.severity BETWEEN .1 AND .9', or "
        "\"tags.name = 'dog' AND tags.score > .95\", or "
        "'NOT EXISTS (SELECT 1 FROM faces WHERE faces.item_id = assets.item_id)'.",
    ),
    click.option(
        "--screen-audit",
        metavar="0..1",
        type=float,
        help="Share of the rows that do not match to pay for all the same, as a random sample, rounded up to "
        "whole rows (0.02): the report estimates from it what the screen misses.",
    ),
    click.option(
        "--screen-positive",
        metavar="SQL",
        help="Condition over the paid answers that says which rows of this sample the screen missed (--screen-rule).",
    ),
    click.option(
        "--upload",
        type=click.Choice(["never", "fallback", "always"]),
        help="Download pictures here and send their bytes; fallback: only those that the service cannot fetch (never).",
    ),
)

manifest_options = add_options(
    click.option("--url-column", metavar="NAME", help="Manifest column with URLs or paths (url, else path)."),
    click.option("--id-column", metavar="NAME", help="Manifest column with unique ids (id)."),
    click.option("--kind-column", metavar="NAME", help="Manifest column with the kind: image or video (kind)."),
    click.option(
        "--lenient",
        is_flag=True,
        default=None,
        help="Treat a CSV record with a broken quote, and all lines after it, as one bad row, not as an error.",
    ),
)

sample_options = add_options(
    click.option(
        "--sample",
        metavar="RULE",
        help="With --budget: rows that it pays for if it is too small for all: order (the first; default), random, "
        "stratified:COLUMN (each value of a manifest column by its share), or diverse (unlike pictures, by perceptual "
        "hash).",
    ),
    click.option("--sample-seed", metavar="N", type=int, help="With --sample: seed of the random order (0)."),
)

execution_options = add_options(
    click.option("--max-at-risk", metavar="CREDITS", type=int, help="Maximum credits in requests without an answer."),
    click.option("--batch-size", metavar="N|auto", callback=_batch_size, help="Images in one request (auto)."),
    click.option("--max-concurrency", metavar="N", type=int, help="Maximum number of requests in flight (64)."),
    click.option(
        "--careful",
        is_flag=True,
        default=None,
        help="One request in flight, so that the balance shows the charge of a lost request.",
    ),
    click.option(
        "--sole-spender", is_flag=True, default=None, help="No other program spends from this account during the run."
    ),
)

table_format_option = click.option(
    "--format", "table_format", type=click.Choice(TABLE_FORMATS), help="Format of the tables (parquet)."
)

price_limit_options = add_options(
    click.option(
        "--compare",
        metavar="FILE",
        type=LOCAL_PATH,
        help="Compare with this saved plan: rows, credits, prices, options.",
    ),
    click.option(
        "--fail-above",
        metavar="CREDITS",
        type=click.IntRange(min=0),
        help="Exit with 3 if the plan may cost more, and send nothing.",
    ),
    click.option(
        "--fail-on-rise",
        metavar="PERCENT",
        help="With --compare: exit with 3 if the upper price rises by more than this, such as 10 or 10%.",
    ),
)

accept_journal_option = click.option(
    "--accept-journal",
    is_flag=True,
    help="Continue with an outdated or copied journal; answers that it lacks are paid for again.",
)

database_option = click.option(
    "--database",
    default="sqlite:///lightmeter.db",
    show_default=True,
    envvar="LIGHTMETER_DATABASE",
    show_envvar=True,
    help="Database: sqlite:///PATH or postgresql://…; PostgreSQL's password may stand in PGPASSWORD.",
)

executor_option = click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    help="What works on shards of rows: this machine alone (local), or the workers of a Dask or Ray cluster.",
)

executor_options = add_options(
    executor_option,
    click.option("--shard-rows", metavar="N", type=int, help=f"Rows in one shard ({DEFAULT_SHARD_ROWS})."),
    click.option(
        "--shard-dir",
        metavar="DIR|URI",
        type=LOCAL_PATH_OR_URI,
        help="Folder or s3://bucket/prefix that this machine and all workers reach, for the files of the shards; "
        "default: the cache folder.",
    ),
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")


def explicit_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a command that the user set, as name → value; `no_reuse: True` becomes `reuse: False`.

    `options` are all options of the command, as click passes them. One that the user did not set is None, or if its
    name begins with `no_`, False.
    """
    explicit = {name: value for name, value in options.items() if value is not None and not name.startswith("no_")}
    denied = {name.removeprefix("no_"): False for name, value in options.items() if name.startswith("no_") and value}
    return explicit | denied
