"""The command line: one file for each verb, imported when it is called.

A verb's module `lightmeter.cli.commands.<verb>` holds a click command called `command`.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Final

import click

from lightmeter.errors import LightmeterError, UsageError

__all__ = ["VERBS", "main"]

VERBS: Final = {
    "plan": "Read a manifest, check it, say what it would cost. Spends nothing.",
    "run": "Plan, then spend, then write the tables.",
    "resume": "Go on after a stop, a crash or a raised budget.",
    "status": "Where every row of a run stands.",
    "statement": "Where every credit of a run went.",
    "rebuild": "Write the tables again from the journal, with no request.",
    "compact": "Few large table files from many small ones.",
    "sql": "Ask the tables, in SQL.",
    "similar": "Pictures like a picture, told by their embeddings.",
    "report": "One HTML page about a run: rows, credits, pictures, findings.",
    "credits": "The balance of the account.",
    "backends": "Who can be asked, for what and for how much, and why one cannot.",
    "serve": "Start the analysis service.",
    "worker": "Do requests of a database that services share.",
    "keys": "Accounts of the service: keys and credits.",
    "demo": "The main job on the sample data, with the embedded service.",
}


class _Verbs(click.Group):
    """Verbs by name, so that `--help` and each verb load only what they need."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (likewise)
        if cmd_name not in VERBS:
            return None
        # Read when Arrow is imported: its own pool keeps about 25 MB that writing tables has freed.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        command: click.Command = import_module(f"lightmeter.cli.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (likewise)
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lightmeter")
def _root() -> None:
    """Analyse thousands to millions of images and videos: know the price first, spend once, get tables you trust.

    \b
    First steps:
      lightmeter demo                               see it work on sample data
      lightmeter plan MANIFEST                      what would it cost?
      lightmeter run MANIFEST --out DIR --budget N  spend at most N credits
      lightmeter sql DIR "SELECT * FROM tags"       ask the tables

    The key of the account is read from LIGHTMETER_API_KEY, never from an argument.
    """


def main() -> None:
    """Run the command line; every error of ours is a message and an exit code, never a traceback."""
    code = _run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done and said: a late Ctrl-C must not end in a traceback
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
        error.show()
        return int(error.exit_code)
    except OSError as error:
        click.echo(f"error: {error.filename or 'A file'}: {error.strerror or error}.", err=True)
        click.echo("  Is it there, is there room, and may you read and write it?", err=True)
        return UsageError.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
