"""The options that plan and run share, once, and how they become the pipeline's options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lightmeter.models.vocabulary import EXTRA_FEATURES, FEATURES, ROLES

__all__ = [
    "accept_journal_option",
    "add_options",
    "analysis_options",
    "execution_options",
    "explicit_options",
    "json_option",
    "manifest_options",
    "spending_options",
]

F = TypeVar("F", bound=Callable[..., Any])


def add_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Put options on a command, listed by --help in this order."""

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


analysis_options = add_options(
    click.option("--base-url", metavar="URL", help="The service; none: the embedded one (or LIGHTMETER_BASE_URL)."),
    click.option(
        "--features",
        metavar="A,B",
        help=f"What to ask for; none: all of {', '.join(FEATURES)}. By name only: {', '.join(EXTRA_FEATURES)}.",
    ),
    click.option("--backends", metavar="A,B", help="Who to ask; none: the service's defaults."),
    click.option(
        "--prices", metavar="FILE", help="Your own prices, JSON or TOML, over the shipped ones (or LIGHTMETER_PRICES)."
    ),
    click.option("--role", metavar="NAME", help=f"Persona of descriptions: {', '.join(ROLES)}."),
    click.option("--language", metavar="NAME", help="Language of descriptions, by its English name."),
    click.option("--prompt", metavar="TEXT", help="Own prompt for descriptions, in place of the role's."),
    click.option("--ask", metavar="FILE", help="Your own question with a JSON schema: its answers are a typed table."),
    click.option("--tag-score", metavar="0..1", type=float, help="Least tag score, sent with each request (0.9)."),
    click.option("--capture-interval", metavar="SECONDS", type=int, help="Between captured frames of a video (1)."),
    click.option("--max-frames", metavar="N", type=int, help="Most frames of a video (3); 0: no limit."),
    click.option("--no-precheck", is_flag=True, help="Do not look at the rows before spending on them."),
    click.option("--no-reuse", is_flag=True, help="Pay anew also where an earlier run's answer is kept."),
    click.option(
        "--upload",
        type=click.Choice(["never", "fallback", "always"]),
        help="Fetch pictures here and send their bytes: never, where the service cannot fetch them, always (never).",
    ),
)

manifest_options = add_options(
    click.option("--url-column", metavar="NAME", help="The manifest's column of URLs or paths (url, else path)."),
    click.option("--id-column", metavar="NAME", help="The manifest's column of unique ids (id)."),
    click.option("--kind-column", metavar="NAME", help="The manifest's column that says image or video (kind)."),
    click.option(
        "--lenient",
        is_flag=True,
        default=None,
        help="A record of CSV whose quote is not closed is a bad row, not an error.",
    ),
)

execution_options = add_options(
    click.option("--max-at-risk", metavar="CREDITS", type=int, help="Most credits in flight without an answer."),
    click.option("--batch-size", metavar="N|auto", callback=_batch_size, help="Images in one request (auto)."),
    click.option("--max-concurrency", metavar="N", type=int, help="Most requests in flight (64)."),
    click.option("--careful", is_flag=True, default=None, help="One request in flight: what is lost can be told."),
    click.option("--sole-spender", is_flag=True, default=None, help="Nobody else spends from this account meanwhile."),
    click.option(
        "--format",
        "table_format",
        type=click.Choice(["parquet", "delta"]),
        help="What tables are written as (parquet).",
    ),
)

spending_options = add_options(
    click.option("--budget", metavar="CREDITS", type=int, help="Hard cap: never more than this is spent."),
    click.option("--yes", is_flag=True, help="Do not ask before spending."),
)

accept_journal_option = click.option(
    "--accept-journal",
    is_flag=True,
    help="Go on with a journal that is older than its run, or a copy: what it does not know is paid again.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")


def explicit_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, named as the pipeline names them."""
    chosen = {name: value for name, value in options.items() if value is not None and not name.startswith("no_")}
    chosen.update(
        {name.removeprefix("no_"): False for name, value in options.items() if name.startswith("no_") and value}
    )
    return chosen
