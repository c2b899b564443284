"""`lightmeter ui` as a process: its address, its token, its end, and runs of other processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.items import count_by_status
from lightmeter.journal.store import open_read_only
from lightmeter.testing import tiny_jpeg
from lightmeter.ui.web.page_token import page_token


@contextmanager
def started(environment, *arguments):
    """Start `lightmeter …`, and kill it at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lightmeter", *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def url_of(process) -> str:
    line = process.stdout.readline()
    assert line.startswith("listening on http://127.0.0.1:"), line
    return line.removeprefix("listening on ").strip()


def status(url: str) -> int:
    address = urlsplit(url)
    with closing(HTTPConnection(address.netloc, timeout=20)) as connection:
        connection.request("GET", f"{address.path}?{address.query}")
        return connection.getresponse().status


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_address_token_and_end(run, environment, end):
    """The command prints its address, answers 403 without the token, logs nothing, and ends with 0 on a signal."""
    with started(environment, "ui", run.folder, "--no-open") as process:
        url = url_of(process)
        assert [status(each) for each in (url, url.partition("?")[0], url[:-1])] == [200, 403, 403]
        address = urlsplit(url)
        with closing(HTTPConnection(address.netloc, timeout=20)) as stream:
            stream.request("GET", f"/events?{address.query}")
            response = stream.getresponse()
            assert response.headers["Content-Type"] == "text/event-stream"
            while not (line := response.readline()).startswith(b"data: "):
                pass
            assert json.loads(line[6:])["rows"]["total"] == 5
            process.send_signal(end)  # while a client follows the run
            assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_folder_without_a_run(command, tmp_path):
    """A folder without a run is one sentence and exit code 2."""
    ended = command("ui", tmp_path, "--no-open")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {tmp_path} holds no run")


def test_port_in_use(command, run):
    """A port that another process uses is one sentence and exit code 2."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        ended = command("ui", run.folder, "--no-open", "--port", port)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: Port {port} cannot be used: Address already in use.")


def test_token_is_kept_for_a_port_alone(tmp_path):
    """With a port the token is the same at each start, in a file of its owner alone; each folder has its own."""
    folder, other = tmp_path / "one", tmp_path / "other"
    token = page_token(tmp_path, folder, 8765)
    assert page_token(tmp_path, folder, 8765) == token
    assert len({token, page_token(tmp_path, other, 8765), page_token(tmp_path, folder, 8766)}) == 3
    assert page_token(tmp_path, folder, 0) != page_token(tmp_path, folder, 0)
    (path,) = [path for path in (tmp_path / "ui").iterdir() if path.read_text() == token]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)  # others may have read it
    assert page_token(tmp_path, folder, 8765) != token


@pytest.mark.sweep
def test_page_follows_a_killed_and_resumed_run(environment, tmp_path, page):
    """An open page shows a run of another process, that it was killed, that it goes on, and its end."""
    for number in range(120):
        (tmp_path / f"{number}.jpg").write_bytes(tiny_jpeg(number))
    manifest, out = tmp_path / "manifest.csv", tmp_path / "out"
    manifest.write_text("id,path\n" + "".join(f"r{number},{number}.jpg\n" for number in range(120)))
    with started(environment, "run", manifest, "--features", "tags,colors,nsfw", "--out", out, "--yes") as process:
        wait_for_rows(out, 10)
        with started(environment, "ui", out, "--no-open") as server:
            page.goto(f"{url_of(server)}#run")
            state = page.locator(".lm-state")
            expect(state).to_contain_text("Running", timeout=30_000)
            os.kill(process.pid, signal.SIGKILL)
            expect(state).to_contain_text("Stopped", timeout=30_000)
            expect(page.locator(".lm-live-head")).to_contain_text(f"Resume with: lightmeter resume {out}")
            with started(environment, "resume", out) as again:
                expect(state).to_contain_text("Running", timeout=60_000)
                again.communicate(timeout=120)
                assert again.returncode == 0
            expect(state).to_contain_text("Finished", timeout=30_000)
            expect(page.locator(".lm-live-rows .lm-lead")).to_have_text("120 of 120 rows done")
            page.goto("about:blank")
    assert read_run_header(out).balance_before is not None


def wait_for_rows(out, least: int) -> None:
    """Wait until at least this many rows are ok, 60 seconds at most."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (out / "journal.sqlite").exists():
            with open_read_only(out) as db:
                if count_by_status(db)["ok"] >= least:
                    return
        time.sleep(0.02)
    raise AssertionError("The run does not start.")
