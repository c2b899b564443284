"""`--help` teaches: every verb says what it does, and names every option of the contract."""

from __future__ import annotations

import pytest

from lightmeter.cli import VERBS
from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.options import Options

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
        "--batch-size",
        "--max-concurrency",
    ),
    *("--no-precheck", "--no-reuse", "--upload", "--careful", "--sole-spender", "--format", "--json"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_teaches(command, verb):
    """A verb's help comes with exit code 0 and says more than its usage line."""
    told = command(verb, "--help")
    assert told.code == 0, told.err
    assert told.out.startswith("Usage: ")
    assert len(told.out.splitlines()) > 6


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_plan_and_run_share_their_options(command, verb):
    """What can be planned can be run, under the same names."""
    told = command(verb, "--help").out
    assert [option for option in RUN_OPTIONS if option not in told] == []


def test_the_default_number_in_flight_leaves_it_to_the_pace(command):
    """What `--help` names as the default is that of the options, and no less than the pace would have in flight."""
    told = " ".join(command("run", "--help").out.split())
    assert f"Maximum number of requests in flight ({Options().max_concurrency})." in told
    assert Options().max_concurrency == AdaptiveLimiter().max_in_flight == 64


def test_the_root_lists_every_verb(command):
    """Who types `lightmeter --help` sees what there is."""
    told = command("--help").out
    assert [verb for verb in VERBS if f"\n  {verb} " not in told] == []


def test_an_unknown_verb_or_option_is_2(command):
    """Wrong usage is said on standard error, with exit code 2."""
    assert command("develop").code == 2
    assert command("run", "--aperture", "2.8").code == 2
    assert command("run", "x.csv", "--out", "o", "--batch-size", "many").code == 2
