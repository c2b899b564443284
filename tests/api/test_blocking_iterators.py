"""Neither Ctrl-C nor the interrupt of a cell waits for a manifest that is an iterator of the user and blocks."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.sweeps import sweep
from tests.ui.kernels import started_kernel, wait_until

SCRIPT = """
import asyncio, signal, sys, threading
import lightmeter as lm

signal.signal(signal.SIGINT, signal.default_int_handler)
options = {"features": ["colors"], "precheck": False}

def rows():
    yield "http://pictures.example/a.jpg"
    print("blocked", flush=True)
    threading.Event().wait()

try:
    match sys.argv[1]:
        case "sync":
            lm.plan(rows(), **options)
        case "asyncio":
            asyncio.run(lm.aio.plan(rows(), **options))
        case "copied":
            lm.run(rows(), sys.argv[2], stream=True, budget=1, **options)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.parametrize("how", ["sync", *map(sweep, ("asyncio", "copied"))])
def test_ctrl_c_does_not_wait_for_a_blocked_iterator(how, tmp_path):
    """While a generator blocks, Ctrl-C stops the plan, and the process ends."""
    command = [sys.executable, "-c", SCRIPT, how, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "blocked\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "stopped\n", "")


CELL = """
import threading
from pathlib import Path
import lightmeter as lm

def rows():
    yield "http://pictures.example/a.jpg"
    Path("blocked").touch()
    threading.Event().wait()

await lm.aio.plan(rows(), features=["colors"], precheck=False)
"""


@pytest.mark.sweep
def test_an_interrupted_cell_does_not_wait_for_a_blocked_iterator(tmp_path):
    """While a generator blocks, the interrupt of the kernel ends the cell; the next cell works."""
    with started_kernel(tmp_path) as kernel:
        cell = kernel.start(CELL)
        wait_until((tmp_path / "blocked").exists, "the generator is not read")
        kernel.manager.interrupt_kernel()
        assert kernel.end(cell).startswith("CancelledError")
        assert kernel.run("print(6 * 7)") == "42\n"
