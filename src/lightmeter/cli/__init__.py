"""The command line `lightmeter`. Its command `status`, for example, is `status_command` in `cli.commands.status`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module
from io import StringIO
from typing import Final

import click

from lightmeter.errors import LightmeterError, UsageError
from lightmeter.extras import import_extra
from lightmeter.redaction import mask_credentials
from lightmeter.terminal import guard_output

__all__ = ["VERBS", "main"]

VERBS: Final = {
    "check": "Check the rows of a manifest, without a key or a service.",
    "plan": "Read and check a manifest, and estimate the cost. Spends nothing.",
    "run": "Plan, analyse within the budget, and write the tables.",
    "resume": "Continue a run after a stop, a crash or a raised budget.",
    "status": "Count the rows of a run by status.",
    "statement": "Account for the credits of a run.",
    "rebuild": "Write the tables again from the journal, without any request.",
    "compact": "Merge the files of each table into one.",
    "sql": "Query the tables in SQL.",
    "similar": "Find pictures similar to a picture, by embeddings.",
    "report": "Write an HTML page about a run: rows, credits, pictures, findings.",
    "ui": "Look at a run in the browser: its pictures and its progress.",
    "credits": "Print the balance of the account.",
    "backends": "List the back ends of a service with features, prices and availability.",
    "serve": "Start the analysis service.",
    "worker": "Process requests of a database that services share.",
    "migrate": "Create or migrate the database of the service.",
    "keys": "Manage the accounts of the service: keys and credits.",
    "jobs": "List and cancel the unfinished requests of the service.",
    "demo": "Run the whole pipeline on sample data with the embedded service.",
}

_MODULES: Final = {
    "resume": "run",
    "statement": "status",
    "compact": "rebuild",
    "similar": "sql",
    "credits": "backends",
    "worker": "serve",
}
"""Command → name of its module, for commands whose module has another name than the command."""

_EXTRAS: Final = {"demo": "report", "report": "report"}
"""Command → name of the package's extra that installs what the command needs."""


class _LazyGroup(click.Group):
    """Group of commands that imports the module of a command only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (likewise)
        if cmd_name not in VERBS:
            return None
        # Arrow reads this when it is imported. Its default pool keeps about 25 MB that is no longer used.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        module = f"lightmeter.cli.commands.{_MODULES.get(cmd_name, cmd_name)}"
        extra = _EXTRAS.get(cmd_name)
        imported = import_module(module) if extra is None else import_extra(module, extra, f"lightmeter {cmd_name}")
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        command: click.Command = getattr(imported, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (likewise)
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lightmeter")
def _root() -> None:
    """Analyze thousands to millions of images and videos: know the price first, spend once, get tables you trust.

    \b
    First steps:
      lightmeter demo                               run on sample data
      lightmeter check MANIFEST                     find broken, missing and duplicate files
      lightmeter plan MANIFEST                      estimate the cost
      lightmeter run MANIFEST --out DIR --budget N  spend at most N credits
      lightmeter sql DIR "SELECT * FROM tags"       query the tables

    The key of the account is read from LIGHTMETER_API_KEY, never from an argument.
    """


def main() -> None:
    """Run the command line and exit. An expected error becomes a message and an exit code, without a traceback."""
    if sys.stdin is None:  # it is closed (`<&-`): read it as empty, and let no other file get its descriptor
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 (open until the end)
    guard_output()
    # The garbage collector is off while the command's module is imported, and ignores what was imported, also at exit:
    # that is a third of the CPU time of a short command.
    gc.disable()
    code = _run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is done: a late Ctrl-C must not print a traceback
    sys.exit(code)


def _run() -> int:
    try:
        return _root.main(standalone_mode=False) or 0
    except LightmeterError as error:
        click.echo(f"error: {error}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        return int(error.exit_code)
    except click.ClickException as error:
        shown = StringIO()
        error.show(shown)
        click.echo(mask_credentials(shown.getvalue()), err=True, nl=False)  # it may quote an argument
        return int(error.exit_code)
    except OSError as error:
        text = f"error: {error.filename or 'A file'}: {error.strerror or error}."
        click.echo(mask_credentials(text), err=True)
        click.echo("  Check that it exists, that there is free space, and that you may read and write it.", err=True)
        return UsageError.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
