"""`lightmeter serve`: what it prints, what it keeps to itself, and how it ends."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from lightmeter.service.faults.config import FAULT_KINDS

LIGHTMETER = Path(sys.executable).with_name("lightmeter")
SECRET = "a-key-that-nobody-may-read"


@contextmanager
def served(folder: Path, *options: str):
    """The command, running: yields its first line; when the block ends it is asked to end."""
    command = [LIGHTMETER, "serve", "--port", "0", "--backends", "palette", *options]
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder, text=True)
    try:
        yield process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
        with (folder / "log.txt").open("a") as log:
            log.write(rest)
    assert process.returncode == 0


def get(line: str, path: str, key: str = "") -> tuple[int, dict]:
    """GET from the address that the line tells."""
    connection = http.client.HTTPConnection(line.removeprefix("listening on http://").strip(), timeout=30)
    try:
        connection.request("GET", path, headers={"X-API-Key": f"Token {key}"})
        answer = connection.getresponse()
        return answer.status, json.load(answer)
    finally:
        connection.close()


def test_it_says_where_it_listens(tmp_path):
    """One line, once it is ready to answer; port 0 is a free one."""
    with served(tmp_path) as first, served(tmp_path, "--database", "sqlite:///other.db") as second:
        assert first.startswith("listening on http://127.0.0.1:")
        assert first != second
        assert get(first, "/readyz") == get(second, "/readyz")
    assert (tmp_path / "lightmeter.db").exists()


def test_a_key_opens_an_account_and_is_written_nowhere(tmp_path):
    """--key NAME=CREDITS lets NAME in; neither output, log nor database hold it; a second start changes no balance."""
    for _ in range(2):
        with served(tmp_path, "--key", f"{SECRET}=25") as line:
            assert get(line, "/api/credits", SECRET) == (200, {"credits": 25})
        assert SECRET not in line
    with served(tmp_path, "--key", f"{SECRET}=99") as line:
        assert get(line, "/api/credits", SECRET) == (200, {"credits": 25})
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert {"lightmeter.db", "log.txt"} <= {path.name for path in files}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


def test_several_keys_are_several_accounts(tmp_path):
    """--key may be given many times."""
    with served(tmp_path, "--key", "one=1", "--key", "two=2") as line:
        assert [get(line, "/api/credits", key)[1]["credits"] for key in ("one", "two")] == [1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--database", "postgresql://user:pass-w0rd@localhost:1/x"], "PostgreSQL"),
        (["--database", "mysql://user:pass-w0rd@localhost/x"], "sqlite:///"),
        (["--database", "sqlite:////proc/nowhere/x.db"], "cannot be used"),
        (["--backends", "crystalball"], "crystalball"),
        (["--key", "nameless"], "NAME=CREDITS"),
        (["--key", "=5"], "NAME=CREDITS"),
        (["--port", "70000"], "70000"),
        (["--host", "192.0.2.1"], "192.0.2.1"),
        (["--workers", "0"], "workers"),
    ],
    ids=str,
)
def test_wrong_options_end_with_2_and_a_sentence(tmp_path, options, says):
    """No traceback, no password, and what is wrong."""
    defaults = ["--port", "0", "--backends", "palette"]
    ended = subprocess.run(
        [LIGHTMETER, "serve", *defaults, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "pass-w0rd" not in ended.stdout + ended.stderr
    assert ended.stdout == ""


def test_a_taken_port_is_a_sentence(tmp_path):
    """Somebody else listens there."""
    with served(tmp_path) as line:
        port = line.rpartition(":")[2].strip()
        ended = subprocess.run(
            [LIGHTMETER, "serve", "--port", port, "--backends", "palette", "--database", "sqlite:///other.db"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert port in ended.stderr


def test_ctrl_c_ends_it_too(tmp_path):
    """SIGINT is as good as SIGTERM: exit 0, no traceback."""
    command = [LIGHTMETER, "serve", "--port", "0", "--backends", "palette"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in log


def test_workers_may_be_chosen(tmp_path):
    """--workers N bounds what is decoded at once."""
    with served(tmp_path, "--workers", "1") as line:
        assert get(line, "/healthz")[0] == 200


def test_faults_are_announced(tmp_path):
    """Who rehearses is told so, in the log and beside it; who does not hears nothing of it. The limit is real."""
    faults = '{"429": {"window": [1, 600], "on": "credits"}, "seed": 7}'
    with served(tmp_path, "--key", "k=5", "--faults", faults) as line:
        assert get(line, "/api/credits", "k") == (200, {"credits": 5})
        assert get(line, "/api/credits", "k")[0] == 429
    said = (tmp_path / "log.txt").read_text()
    assert f"*** FAULTS ARE ON: this service misbehaves on purpose: {faults} ***" in said
    assert said.count("FAULTS ARE ON") == 2
    (tmp_path / "log.txt").unlink()
    with served(tmp_path):
        pass
    assert "FAULT" not in (tmp_path / "log.txt").read_text()


def test_a_fault_that_is_none_is_wrong_usage(command):
    """Exit code 2, and what is allowed."""
    told = command("serve", "--faults", '{"429": {"bucket": "fast"}}')
    assert told.code == 2
    assert "Fault 429: bucket: Input should be a valid number, not 'fast'" in told.err


def test_every_fault_is_in_the_help(command):
    """With the way it is written."""
    told = command("serve", "--help").out
    assert [name for name, kind in FAULT_KINDS.items() if f'"{name}": {kind.example}' not in told] == []
