"""`--help` of every verb describes it and names all its options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import lightmeter
from lightmeter.cli import VERBS, _root
from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.options import REQUEST_OPTIONS, Options, options_of

RUN_OPTIONS = (
    *("--base-url", "--features", "--backends", "--role", "--language", "--prompt", "--tag-score"),
    *(
        "--prices",
        "--url-column",
        "--id-column",
        "--kind-column",
        "--lenient",
        "--capture-interval",
        "--max-frames",
        "--budget",
        "--max-at-risk",
        "--sample",
        "--batch-size",
        "--max-concurrency",
    ),
    *("--no-precheck", "--skip", "--no-reuse", "--upload", "--careful", "--sole-spender", "--format", "--json"),
    *("--compare", "--fail-above", "--fail-on-rise"),
)

_OPTION = re.compile(r"--[a-z][a-z-]+")


def help_of(*verb: str) -> str:
    """The text of `--help`."""
    result = CliRunner().invoke(_root, [*verb, "--help"])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb):
    """The help of each verb ends with exit code 0 and is longer than its usage line."""
    text = help_of(verb)
    assert text.startswith("Usage: ")
    assert len(text.splitlines()) > 6


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_plan_and_run_share_their_options(verb):
    """`plan` and `run` have the same options."""
    result = help_of(verb)
    assert [option for option in RUN_OPTIONS if option not in result] == []


def test_the_default_concurrency_is_that_of_the_limiter():
    """The default in the help equals that of the options and the maximum of the rate limiter."""
    result = " ".join(help_of("run").split())
    assert f"the rate limiter may allow fewer. [default: {Options().max_concurrency}]" in result
    assert Options().max_concurrency == AdaptiveLimiter().max_in_flight == 64


def test_the_root_lists_every_verb(command):
    """`lightmeter --help` lists every verb."""
    result = command("--help").out
    assert [verb for verb in VERBS if f"\n  {verb} " not in result] == []


def test_wrong_usage_is_exit_code_2(command):
    """Unknown verbs, options and values end with exit code 2."""
    assert command("develop").code == 2
    assert command("run", "--aperture", "2.8").code == 2
    assert command("run", "x.csv", "--out", "o", "--batch-size", "many").code == 2


def test_the_garbage_collector_ignores_what_was_imported():
    """The garbage collector works during a command, and neither then nor at exit visits the imported modules."""
    code = (
        "import atexit, gc, sys; from lightmeter.cli import main; sys.argv = ['lightmeter', 'status', '/nowhere']; "
        "atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 100_000)); main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "True True\n"), ended.stderr


def test_messages_name_only_options_that_commands_have():
    """Each command that a text of the package names has the options that follow it."""
    has = {verb: help_of(verb) for verb in VERBS}
    named = re.compile(rf"lightmeter ({'|'.join(VERBS)})\b([^:;`\n.]*)")
    texts = [path.read_text() for path in Path(lightmeter.__file__).parent.rglob("*.py")]
    commands = [
        (verb, option) for text in texts for verb, rest in named.findall(text) for option in _OPTION.findall(rest)
    ]
    assert len(commands) > 20
    assert [one for one in commands if one[1] not in has[one[0]] and one[1] != "--help"] == []


def test_resume_offers_only_options_that_may_change():
    """`resume` has no option that every start of it refuses, such as the order in which rows are sent."""
    planned = {f"--{name.replace('_', '-')}" for name in (*REQUEST_OPTIONS, *options_of("read"), *options_of("sample"))}
    assert planned.isdisjoint(re.findall(r"--[a-z-]+", help_of("resume")))
