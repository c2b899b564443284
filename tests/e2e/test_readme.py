"""The README's own examples, run as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder that looks like a checkout to commands: the sample data are there, and what is written goes away."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "data").symlink_to(ROOT / "data")
    return folder


def blocks(kind: str) -> list[str]:
    """Every fenced block of the README that is marked with this word."""
    pieces = re.split(r"^```(\w*)\n", README, flags=re.MULTILINE)
    return [text for mark, text in zip(pieces[1::4], pieces[2::4], strict=True) if mark == kind]


def test_the_python_example_runs(checkout, environment):
    """What the README shows in Python works when it is pasted."""
    (example,) = blocks("python")
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "20 rows" in ended.stdout


def test_the_command_line_example_runs(checkout, environment):
    """What the README shows on the command line works line by line."""
    (example,) = [block for block in blocks("") if block.startswith("lightmeter plan")]
    for line in example.strip().splitlines():
        words = shlex.split(line)
        ended = subprocess.run(
            [sys.executable, "-m", *words], cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"{line}\n{ended.stderr}"
        assert ended.stdout.strip()
    assert (checkout / "out" / "run" / "tables" / "tags").is_dir()


SERVICES = [block for block in blocks("") if block.startswith("lightmeter serve --port")]


@pytest.mark.parametrize("example", SERVICES)
def test_the_service_examples_run(checkout, environment, example):
    """The service starts with the README's options, says where it listens, and answers the README's key."""
    words = shlex.split(example.replace("8080", "0"))
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        base_url = process.stdout.readline().split()[-1]
        env = {**environment, "LIGHTMETER_API_KEY": "mykey", "LIGHTMETER_BASE_URL": base_url}
        told = subprocess.run(
            [sys.executable, "-m", "lightmeter", "credits"], env=env, capture_output=True, text=True, check=False
        )
        assert told.stdout.strip() == "500", told.stderr
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0
        process.stdout.close()
    assert (checkout / "lightmeter.db").exists()
