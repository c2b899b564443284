"""Command-line options that several commands share; those of a run are made from the fields of `Options`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lightmeter.options import RESUME_OPTIONS, CheckOptions, Options, ScaleOutOptions, option_info
from lightmeter.paths import local_path

F = TypeVar("F", bound=Callable[..., Any])


class _LocalPath(click.Path):
    """Type of options and arguments that name a local file or folder: their value is an absolute `Path`.

    Args:
        names: Texts that are no paths, and stay as they are.
    """

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self._names:
            return value
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


def model_options(*names: str, model: type[BaseModel] = Options) -> Callable[[F], F]:
    """Return a decorator that adds the options of a run that `names` lists; all options of `model` without names."""
    return add_options(*(_click_option(name, model.model_fields[name]) for name in names or model.model_fields))


def _click_option(name: str, field: FieldInfo) -> Callable[[F], F]:
    """Return the option of the command line for a field of the options; it is None if the user does not give it."""
    info, kind = option_info(field), field.annotation
    flag = "--format" if name == "table_format" else f"--{name.replace('_', '-')}"
    choices = info.choices or _choices(kind)
    if kind is bool:
        return click.option(f"{flag}/{flag.replace('--', '--no-')}", name, default=None, help=_help(field))
    if choices and not info.unit:
        return click.option(flag, name, type=click.Choice(choices), help=_help(field))
    value_type: Any = _LocalPath(info.choices) if info.is_file else _number(kind)
    if "URI" in info.unit:
        value_type = LOCAL_PATH_OR_URI
    return click.option(flag, name, metavar=info.unit, type=value_type, help=_help(field))


def _choices(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _number(kind: Any) -> type[int | float] | None:
    """Return the type of a number for click; None for a text."""
    return next((number for number in (int, float) if number in (kind, *get_args(kind))), None)


def _help(field: FieldInfo) -> str:
    """Return the help text of an option: its description, with options as the command line names them, and default."""
    info, default = option_info(field), field.default
    text = re.sub(r"`(\w+)`", lambda match: _FLAGS.get(match[1], match[1]), field.description or "")
    choices = f" Choose from {', '.join(info.choices)}." if info.choices and info.unit and not info.is_file else ""
    needs = f" Needs {info.needs}." if info.needs else ""
    has_default = default not in {None, ()} and field.annotation is not bool
    return text + choices + needs + (f" [default: {default}]" if has_default else "")


_FLAGS: Final = {name: f"--{name.replace('_', '-')}" for name in Options.model_fields}
"""Name of an option in Python → on the command line."""

base_url_option = model_options("base_url")
table_format_option = model_options("table_format")
executor_option = model_options("executor", model=ScaleOutOptions)
executor_options = model_options(model=ScaleOutOptions)
check_options = model_options(*CheckOptions.model_fields, "reuse")
run_options = model_options(*(name for name in Options.model_fields if name != "table_format"))
resume_options = model_options(*RESUME_OPTIONS)

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

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")


def explicit_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a command that the user set, as name → value, from all that click passes to it."""
    return {name: value for name, value in options.items() if value is not None}
