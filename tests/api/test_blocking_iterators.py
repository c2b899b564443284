"""Ctrl-C does not wait for a manifest that is an iterator of the user and blocks."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.sweeps import sweep

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
            lm.sync(lm.plan(rows(), **options))
        case "asyncio":
            asyncio.run(lm.plan(rows(), **options))
        case "copied":
            lm.sync(lm.run(rows(), sys.argv[2], stream=True, budget=1, **options))
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
