"""Runs a command as a process of its own, and measures its processor time and its greatest memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of an ended process, its children included.

    Attributes:
        wall_s: Elapsed time, in seconds.
        cpu_s: Processor time, in seconds.
        peak_mb: Greatest memory (RSS) of one of the processes, in MiB.
        output: What it printed, or the end of its errors if it failed.
        failed: Whether its exit code was not 0.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str
    failed: bool


def measure_process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command to its end; `environment` is added to this process's."""
    began, pipe = time.perf_counter(), subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    lines = output.strip().splitlines()
    cpu_s, peak_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    return Measured(seconds, cpu_s, peak_mb, lines[-1] if lines else "", process.returncode != 0)
