"""The sections "Every night" and "Past one machine" of the README, followed word for word."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import lightmeter as lm
from tests.e2e.prefect_server import prefect_server, running

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN_S = 900


def section(title):
    """Return the text of a section of the README."""
    return re.split(r"^## ", README.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def first_block(title):
    """Return the lines of the first code block of a section."""
    return re.search(r"^```\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)[1].splitlines()


def program(line):
    """Return the words of a command, with the program of this environment."""
    name, *words = shlex.split(line)
    return [shutil.which(name, path=Path(sys.executable).parent), *words]


@pytest.fixture
def checkout(tmp_path):
    """A folder with what a clone has for these sections."""
    shutil.copytree(ROOT / "flows", tmp_path / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "data", tmp_path / "data")
    shutil.copy(ROOT / "prefect.yaml", tmp_path)
    return tmp_path


def run(line, checkout, environment):
    """Run a command to its end; return what it prints."""
    ended = subprocess.run(
        program(line), cwd=checkout, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def test_every_night(checkout, environment, tmp_path_factory):
    """The commands deploy all flows; a run of `nightly` pays for the sample pictures, and a second one for nothing."""
    (start_run,) = re.findall(r"`(prefect deployment run [^`]+)`", section("Every night"))
    with prefect_server(environment, tmp_path_factory.mktemp("prefect")) as server, ExitStack() as stack:
        for line in first_block("Every night"):
            if "worker start" in line:
                own = {**server.environment, "PREFECT_WORKER_QUERY_SECONDS": "2"}
                log = tmp_path_factory.mktemp("worker") / "worker.log"
                stack.enter_context(running(program(line), own, log))
            else:
                run(line, checkout, server.environment)
        paid = []
        for _ in range(2):
            run(start_run, checkout, server.environment)
            paid.append(lm.open(checkout / "out" / "nightly").summary().paid)
    assert paid[0] > 0
    assert paid[1] == paid[0]


def test_past_one_machine(checkout, environment):
    """The commands check the sample rows on workers, run them, and write the tables on workers."""
    for line in first_block("Past one machine"):
        run(line, checkout, environment)
    scaled = lm.open(checkout / "out" / "scaled")
    assert scaled.summary().exit_code == 0
    assert len(scaled.tags) > 0
