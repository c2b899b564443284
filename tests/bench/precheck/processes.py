"""Runs a command as a process of its own, and measures its processor time and its greatest memory."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SAMPLED_S = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of an ended process.

    Attributes:
        wall_s: Elapsed time, in seconds.
        cpu_s: Processor time with that of its ended children, in seconds.
        peak_mb: Greatest memory (RSS), in MiB; the greatest of the process and its children.
        output: The last line that it printed, errors included.
        exit_code: Its exit code, or a signal's number as a negative number.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str
    exit_code: int


def measure_process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command to its end; `environment` is added to this process's."""
    began, peak_mb, ended, status = time.perf_counter(), 0.0, 0, 0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
        while not ended:
            peak_mb = max(peak_mb, *map(_peak_mb, _family(process.pid)))
            time.sleep(_SAMPLED_S)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().strip().splitlines() or [""]
    seconds = time.perf_counter() - began
    return Measured(seconds, usage.ru_utime + usage.ru_stime, peak_mb, lines[-1], process.returncode)


def _family(pid: int) -> list[int]:
    """Return the ids of a process and of its living descendants."""
    found = [pid]
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                found += _family(int(child))
    return found


def _peak_mb(pid: int) -> float:
    """Return the peak memory of a living process (`VmHWM`). `ru_maxrss` would be no less than that of its parent."""
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0
    return 0.0
