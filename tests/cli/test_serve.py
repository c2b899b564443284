"""`lightmeter serve`: output, secrets, errors and shutdown."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest

from lightmeter.service.faults.config import FAULT_KINDS

SECRET = "a-key-that-nobody-may-read"


@pytest.fixture
def running_service(fork_server, tmp_path, monkeypatch):
    """Return a context manager that runs the command: yields its first line, and sends a signal at the end."""
    monkeypatch.chdir(tmp_path)
    copies = count()

    @contextmanager
    def run(*options: str, end: signal.Signals = signal.SIGTERM, limits: dict[str, int] | None = None):
        copy = fork_server.copy(tmp_path / "commands" / str(next(copies)))
        arguments = ["serve", "--port", "0", "--backends", "palette", *options]
        process = copy.start(*arguments, env={}, limits=limits)
        try:
            yield process.first_line()
        finally:
            process.signal(end)
            ended = process.wait()
            copy.close()
            with (tmp_path / "log.txt").open("a") as log:
                log.write(ended.err + ended.out)
        assert ended.code == 0

    return run


def get(line: str, path: str, key: str = "") -> tuple[int, dict]:
    """Send a GET request to the address in the first line; return status and JSON."""
    connection = http.client.HTTPConnection(line.removeprefix("listening on http://").strip(), timeout=30)
    try:
        connection.request("GET", path, headers={"X-API-Key": f"Token {key}"})
        answer = connection.getresponse()
        return answer.status, json.load(answer)
    finally:
        connection.close()


def test_it_says_where_it_listens(running_service, tmp_path):
    """The command prints one line with its address when it is ready; port 0 selects a free port."""
    with running_service() as first, running_service("--database", "sqlite:///other.db") as second:
        assert first.startswith("listening on http://127.0.0.1:")
        assert first != second
        assert get(first, "/readyz") == get(second, "/readyz")
    assert (tmp_path / "lightmeter.db").exists()


def test_a_key_opens_an_account_and_is_written_nowhere(running_service, tmp_path):
    """--key creates an account; output, log and database do not hold the key; a restart keeps the balance."""
    for _ in range(2):
        with running_service("--key", f"{SECRET}=25") as line:
            assert get(line, "/api/credits", SECRET) == (200, {"credits": 25})
        assert SECRET not in line
    with running_service("--key", f"{SECRET}=99") as line:
        assert get(line, "/api/credits", SECRET) == (200, {"credits": 25})
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert {"lightmeter.db", "log.txt"} <= {path.name for path in files}
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []


def test_several_keys_are_several_accounts(running_service):
    """--key may be given several times."""
    with running_service("--key", "one=1", "--key", "two=2") as line:
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
def test_wrong_options_are_exit_code_2(command, tmp_path, monkeypatch, options, says):
    """The error has a message, no traceback and no password."""
    monkeypatch.chdir(tmp_path)
    ended = command("serve", "--port", "0", "--backends", "palette", *options)
    assert ended.code == 2
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert "pass-w0rd" not in ended.out + ended.err
    assert ended.out == ""


def test_a_port_in_use_is_an_error_message(command, tmp_path, monkeypatch):
    """A port that another process uses gives an error message."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ended = command("serve", "--port", port, "--backends", "palette", "--database", "sqlite:///other.db")
    assert (ended.code, ended.out) == (2, "")
    assert port in ended.err


def test_sigint_ends_the_service(running_service, tmp_path):
    """SIGINT ends the service like SIGTERM: exit code 0, no traceback."""
    with running_service(end=signal.SIGINT):
        pass
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


def test_workers_may_be_chosen(running_service):
    """--workers limits the number of assets analysed at the same time."""
    with running_service("--workers", "1") as line:
        assert get(line, "/healthz")[0] == 200


def test_faults_are_announced(running_service, tmp_path):
    """Active faults are announced on standard error and in the log, and have their effect."""
    faults = '{"429": {"window": [1, 600], "on": "credits"}, "seed": 7}'
    with running_service("--key", "k=5", "--faults", faults) as line:
        assert get(line, "/api/credits", "k") == (200, {"credits": 5})
        assert get(line, "/api/credits", "k")[0] == 429
    log = (tmp_path / "log.txt").read_text()
    assert f"*** FAULTS ARE ON: this service misbehaves on purpose: {faults} ***" in log
    assert log.count("FAULTS ARE ON") == 2
    (tmp_path / "log.txt").unlink()
    with running_service():
        pass
    assert "FAULT" not in (tmp_path / "log.txt").read_text()


def test_an_invalid_fault_is_exit_code_2(command):
    """An invalid fault is exit code 2, and the message says what is allowed."""
    result = command("serve", "--faults", '{"429": {"bucket": "fast"}}')
    assert result.code == 2
    assert "Fault 429: bucket: Input should be a valid number, not 'fast'" in result.err


def test_every_fault_is_in_the_help(command):
    """The help of `serve` describes every fault with an example."""
    result = command("serve", "--help").out
    assert [name for name, kind in FAULT_KINDS.items() if f'"{name}": {kind.example}' not in result] == []


def test_half_sent_heads_leave_room_for_others(running_service, tmp_path):
    """300 half-sent heads at 256 descriptors keep nobody out, and are not logged one by one."""
    with running_service(limits={"RLIMIT_NOFILE": 256}) as line, ExitStack() as stack:
        port = int(line.rpartition(":")[2])
        for _ in range(300):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            half.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
        assert get(line, "/healthz") == (200, {"status": "ok"})
    assert (tmp_path / "log.txt").stat().st_size < 100_000


def test_the_public_url_is_an_option(running_service):
    """--public-url is the base of `response_uri`; a slash at its end makes no difference."""
    with running_service("--key", f"{SECRET}=25", "--public-url", "https://api.example.org/") as line:
        connection = http.client.HTTPConnection(line.removeprefix("listening on http://").strip(), timeout=30)
        body = json.dumps({"file": ["AAAA", "AAAB"]})
        connection.request("POST", "/api/fetch", body, {"X-API-Key": f"Token {SECRET}"})
        acknowledged = json.load(connection.getresponse())
        connection.close()
    assert acknowledged["response_uri"] == f"https://api.example.org/api/response/{acknowledged['request_id']}"


@pytest.mark.parametrize(
    ("option", "value", "names"),
    [
        ("--public-url", "api.example.org", "https://example.org"),
        ("--public-url", "https://user:word@api.example.org", "password"),
        ("--trusted-proxy", "10.0.0.1/8", "10.0.0.0/8"),
        ("--trusted-proxy", "proxy", "127.0.0.1"),
    ],
)
def test_wrong_addresses_are_named(command, option, value, names):
    """A wrong --public-url or --trusted-proxy is a usage error that shows a right one."""
    result = command("serve", option, value)
    assert result.code == 2
    assert option in result.err
    assert names in result.err
