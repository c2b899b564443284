"""A Dask scheduler that ends in the middle of the work is one error, which says what to do next."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lightmeter.errors import WorkersLost
from lightmeter.scale_out.executors import open_executor

DEADLINE_S = 120


def sleep(seconds: float) -> float:
    """A shard that takes some time."""
    time.sleep(seconds)
    return seconds


def test_the_end_of_the_scheduler_is_an_error_with_a_hint():
    """Shards that are not finished when the scheduler ends raise an error that says so."""
    distributed = pytest.importorskip("distributed")
    arguments = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(**arguments) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        open_executor(client) as executor,
    ):
        results = filter(None, executor.map(sleep, [0.1, 3]))
        assert next(results) == 0.1
        cluster.close()
        with pytest.raises(WorkersLost, match="scheduler") as raised:
            next(results)
    assert "nothing was paid for" in raised.value.hint


@pytest.mark.sweep
def test_a_command_whose_scheduler_is_killed_prints_no_traceback(tmp_path):
    """`check --executor dask` ends with exit code 1, the error, and what to do next."""
    pytest.importorskip("distributed")
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    local = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    with (
        socket.create_server(("127.0.0.1", 0)) as site,
        started([*dask, *local], stderr=subprocess.PIPE, text=True) as scheduler,
    ):
        (tmp_path / "m.txt").write_text(f"http://127.0.0.1:{site.getsockname()[1]}/a.jpg\n", encoding="utf-8")
        lines = iter(scheduler.stderr.readline, "")
        address = next(found[0] for line in lines if (found := re.search(r"tcp://127\.0\.0\.1:\d+", line)))
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"]
        check = [sys.executable, "-m", "lightmeter", "check", str(tmp_path / "m.txt"), "--executor", "dask"]
        environment = {**os.environ, "DASK_SCHEDULER_ADDRESS": address}
        with (
            started(worker, stderr=subprocess.DEVNULL),
            started(check, env=environment, stderr=subprocess.PIPE, text=True) as command,
        ):
            site.settimeout(DEADLINE_S)
            connection, _ = site.accept()  # the worker asks for the picture, and gets no answer
            scheduler.kill()
            _, printed = command.communicate(timeout=DEADLINE_S)
            connection.close()
    error, hint = (line for line in printed.splitlines() if not line.startswith("checking"))
    assert error == "error: The Dask scheduler has ended, or cannot be reached any more."
    assert hint.strip().startswith("Start the scheduler again")
    assert command.returncode == WorkersLost.exit_code


@contextmanager
def started(command: list[str], **options) -> Iterator[subprocess.Popen]:
    """Run a command during the block, and kill it at the end."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
