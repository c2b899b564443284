"""The examples of the README run unchanged."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.sample_folder import link_samples
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(params=[3, sweep(20)], ids=["few samples", "all samples"])
def rows(request):
    """How many of the sample data the examples use; test_demo.py analyses all of them each day."""
    return request.param


@pytest.fixture
def checkout(rows, sample_rows, tmp_path):
    """A folder with sample data, in which the commands of the README run."""
    link_samples(tmp_path, sample_rows[:rows])
    return tmp_path


def blocks(kind: str) -> list[str]:
    """Return the fenced code blocks of the README with this language."""
    pieces = re.split(r"^```(\w*)\n", README, flags=re.MULTILINE)
    return [text for mark, text in zip(pieces[1::4], pieces[2::4], strict=True) if mark == kind]


def test_the_python_example_runs(checkout, rows, environment):
    """The Python example of the README runs unchanged."""
    (example,) = blocks("python")
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert f"{rows} rows" in ended.stdout


def test_the_command_line_example_runs(checkout, command, monkeypatch):
    """The command-line example of the README runs line by line."""
    (example,) = [block for block in blocks("") if block.startswith("lightmeter plan")]
    monkeypatch.chdir(checkout)
    for line in example.strip().splitlines():
        ended = command(*shlex.split(line)[1:])
        assert ended.code == 0, f"{line}\n{ended.err}"
        assert ended.out.strip()
    assert (checkout / "out" / "run" / "tables" / "tags").is_dir()


SERVICES = [line for block in blocks("") for line in block.splitlines() if line.startswith("lightmeter serve --port")]


@pytest.mark.parametrize(
    "example",
    # The daily one also reads the file with the faults.
    [pytest.param(line, marks=[] if "faults.toml" in line else pytest.mark.sweep) for line in SERVICES],
)
def test_the_service_examples_run(command, fork_server, tmp_path, monkeypatch, example):
    """The service starts with the options of the README, prints its address, and accepts the README's key."""
    (faults,) = [block for block in blocks("toml") if block.startswith("# faults.toml")]
    (tmp_path / "faults.toml").write_text(faults, encoding="utf-8")
    words = shlex.split(example.replace("8080", "0"))[1:]
    monkeypatch.chdir(tmp_path)
    copy = fork_server.copy(tmp_path / "commands")
    process = copy.start(*words, env={})
    try:
        base_url = process.first_line().split()[-1]
        result = command("credits", LIGHTMETER_API_KEY="mykey", LIGHTMETER_BASE_URL=base_url)
        assert result.out.strip() == "500", result.err
    finally:
        process.signal(signal.SIGTERM)
        ended = process.wait()
        copy.close()
    assert ended.code == 0
    assert (tmp_path / "lightmeter.db").exists()
