"""After kill -9, Ctrl-C or a reached budget a run resumes: no row is lost or paid for twice."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

import lightmeter as lm
from lightmeter.journal.files import journal_path
from lightmeter.journal.queries.items import count_by_status
from lightmeter.journal.store import open_read_only
from lightmeter.testing import tiny_jpeg
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

OPTIONS = ("--features", "colors", "--batch-size", 1, "--no-precheck")
ROWS = 40
ANSWERED = 10
"""Rows that can be answered before the pictures of the others are released."""


SCRIPT = """
import signal
import sys
import lightmeter as lm

signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, a shell starts it with SIGINT ignored

plan = lm.plan(sys.argv[1], features=["colors"], batch_size=1, precheck=False, budget=100, max_concurrency=2)
lm.run(plan, out=sys.argv[2])
"""


class _Pictures(BaseHTTPRequestHandler):
    """Serves a picture for each number; those from `ANSWERED` on only after the event `released`."""

    released: Event

    def do_GET(self) -> None:
        number = int(self.path.strip("/").partition(".")[0])
        if number >= ANSWERED:
            self.released.wait()
        body = tiny_jpeg(number)
        with suppress(ConnectionError):  # the client was killed
            self.send_response(200)
            self.send_header("Content-Type", "image/jpeg")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def released(tmp_path):
    """An event that releases the pictures; the manifest with their URLs is `manifest.csv`."""
    event = Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Pictures", (_Pictures,), {"released": event}))
    Thread(target=server.serve_forever, daemon=True).start()
    urls = [f"r{number},http://127.0.0.1:{server.server_port}/{number}.jpg\n" for number in range(ROWS)]
    (tmp_path / "manifest.csv").write_text("id,url\n" + "".join(urls))
    yield event
    event.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def manifest(released, tmp_path):
    """A manifest of many small, different images."""
    return tmp_path / "manifest.csv"


def start(environment, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lightmeter", *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(out, least: int, process: subprocess.Popen[str]) -> None:
    """Wait until at least this many rows are ok."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal_path(out).exists():
            try:
                with open_read_only(out) as db:
                    if count_by_status(db)["ok"] >= least:
                        return
            except lm.LightmeterError:  # the journal is just being made
                pass
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


def answered_so_far(out) -> dict[str, int]:
    """Return what `answered` does; nothing while the journal is being made."""
    try:
        return answered(out)
    except lm.LightmeterError:
        return {}


def _read_to_end(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass


def answered(out) -> dict[str, int]:
    """Return the submission of each row that is ok."""
    with open_read_only(out) as db:
        return dict(db.execute("SELECT item_id, submission_id FROM items WHERE status = 'ok'"))


@pytest.mark.sweep  # daily: test_kills.py and test_streaming.py
def test_a_killed_run_resumes_without_asking_again(command, environment, manifest, released, tmp_path):
    """After kill -9, `resume` finishes the run: answered rows keep their answers, and each row is paid for once."""
    process = start(environment, "run", manifest, *OPTIONS, "--out", tmp_path / "out", "--yes")
    wait_for_rows(tmp_path / "out", ANSWERED, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    released.set()
    before = answered(tmp_path / "out")
    assert ANSWERED <= len(before) < ROWS
    waiting = command("status", tmp_path / "out", "--json")
    assert waiting.code == 1
    assert waiting.json["ok"] + waiting.json["pending"] == ROWS
    ended = command("resume", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["ok"] == ROWS
    after = answered(tmp_path / "out")
    assert {item: after[item] for item in before} == before
    money = ended.json["credits"]
    assert money["paid"] == money["balance_before"] - money["balance_after"] == ROWS
    again = command("resume", tmp_path / "out", "--json")
    assert (again.code, again.json["requests"]) == (0, ended.json["requests"])


@pytest.mark.parametrize(
    "name",
    [signal.SIGINT, signal.SIGHUP, *map(sweep, (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU))],
)
def test_a_signal_drains_the_run_and_prints_how_to_resume(command, environment, manifest, released, tmp_path, name):
    """On a signal of a user, scheduler or lost terminal, the run awaits requests in flight and exits with 130."""
    process = start(
        environment, "run", manifest, *OPTIONS, "--out", tmp_path / "out", "--yes", "--json", "--max-concurrency", 2
    )
    wait_for_rows(tmp_path / "out", 5, process)
    process.send_signal(name)
    released.set()
    stdout, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "lightmeter resume" in err
    with open_read_only(tmp_path / "out") as db:
        assert [state for (state,) in db.execute("SELECT DISTINCT state FROM submissions")] == ["settled"]
    ok = len(answered(tmp_path / "out"))
    assert 5 <= ok < ROWS
    assert lm.open(tmp_path / "out").sql("SELECT count(*) AS n FROM assets WHERE status = 'ok'")["n"][0] == ok
    assert command("resume", tmp_path / "out", "--json").json["ok"] == ROWS
    assert stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_closed_terminal_drains_the_run(command, environment, manifest, released, tmp_path):
    """When its terminal is closed, a run stores the answers to requests in flight, although it can print nothing."""
    arguments = ["run", manifest, *OPTIONS, "--out", tmp_path / "out", "--yes", "--max-concurrency", 2]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "lightmeter", *map(str, arguments)], environment)  # noqa: S606
    reading = Thread(target=_read_to_end, args=(terminal,), daemon=True)
    reading.start()
    deadline = time.monotonic() + 60
    while not journal_path(tmp_path / "out").exists() or len(answered_so_far(tmp_path / "out")) < ANSWERED:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.close(terminal)
    time.sleep(0.5)  # (the signal comes at once; the requests must still be in flight)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    released.set()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    with open_read_only(tmp_path / "out") as db:
        assert [state for (state,) in db.execute("SELECT DISTINCT state FROM submissions")] == ["settled"]
    assert command("status", tmp_path / "out", "--json").json["in_doubt"] == 0


def test_a_run_under_nohup_goes_on(command, environment, manifest, released, tmp_path):
    """A process that was started to ignore SIGHUP goes on after it."""
    arguments = ["run", manifest, *OPTIONS, "--out", tmp_path / "out", "--yes", "--max-concurrency", 2]
    process = subprocess.Popen(
        ["nohup", sys.executable, "-m", "lightmeter", *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_rows(tmp_path / "out", 5, process)
    process.send_signal(signal.SIGHUP)
    released.set()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(answered(tmp_path / "out")) == ROWS


def test_ctrl_c_in_a_script_stores_the_answers_of_sent_requests(environment, manifest, released, tmp_path):
    """A script that is interrupted in `lm.run(…)` ends only when all sent requests are answered and stored."""
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "script.py", manifest, tmp_path / "out"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_rows(tmp_path / "out", ANSWERED, process)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    released.set()
    _, err = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    with open_read_only(tmp_path / "out") as db:
        assert [state for (state,) in db.execute("SELECT DISTINCT state FROM submissions")] == ["settled"]
    assert ANSWERED < len(answered(tmp_path / "out")) < ROWS


@pytest.mark.sweep  # daily: tests/engine/test_budgets.py and tests/e2e/kills/test_budgets.py
def test_a_budget_is_a_hard_cap_and_can_be_raised(command, manifest, released, tmp_path):
    """The budget is used up and never exceeded, and `resume` with a higher one continues."""
    released.set()
    capped = command("run", manifest, *OPTIONS, "--out", tmp_path / "out", "--budget", 20, "--json")
    assert capped.code == 3, capped.err
    assert (capped.json["ok"], capped.json["over_budget"]) == (20, ROWS - 20)
    assert capped.json["credits"]["paid"] == 20
    assert "--budget" in capped.err
    same = command("run", manifest, *OPTIONS, "--out", tmp_path / "out", "--yes", "--json")
    assert (same.code, same.json["requests"]) == (3, capped.json["requests"])
    raised = command("resume", tmp_path / "out", "--budget", ROWS, "--json")
    assert raised.code == 0, raised.err
    assert raised.json["credits"]["paid"] == ROWS


@pytest.mark.sweep  # daily: test_a_folder_in_use_is_refused in tests/e2e/kills
def test_two_runs_cannot_share_a_folder(command, environment, manifest, released, tmp_path):
    """While one process runs a folder, a second one is refused and sends nothing."""
    process = start(environment, "run", manifest, *OPTIONS, "--out", tmp_path / "out", "--yes", "--max-concurrency", 1)
    wait_for_rows(tmp_path / "out", 1, process)
    second = command("resume", tmp_path / "out")
    process.terminate()
    released.set()
    process.communicate(timeout=60)
    assert second.code == 2
    assert "Another process" in second.err
