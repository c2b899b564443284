"""Starts runs against the counterpart, kills them where it is told to, and looks at what is left.

A kill at a system call: `strace` counts the calls of one name in each thread and sends the signal instead of the
N-th, so that N = 1, 2, 3, … walks through every step that reaches the disk or the network.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KILLED = -signal.SIGKILL
TRACED_S = 20.0
HANGS_S = 60.0
"""No story takes a tenth of that."""


class Counterpart:
    """The service at the other end, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, HERE / "counterpart.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.base_url = self._process.stdout.readline().strip()
        self._accounts = 0

    def account(self, **rules: Any) -> str:
        """A new key with these rules."""
        self._accounts += 1
        key = f"key{self._accounts}"
        self.rules(key, **rules)
        return key

    def rules(self, key: str, **rules: Any) -> None:
        """Serve an account by other rules from now on; its faults end unless they are named."""
        self._tell("POST", key, rules)

    def move(self, key: str, credits_: int) -> None:
        """Buy credits, or spend some if it is below 0, behind the runs' back."""
        self._tell("PUT", key, credits_)

    def _tell(self, method: str, key: str, what: Any) -> None:
        body, address = json.dumps(what).encode(), f"{self.base_url}/ledger/{key}"
        request = urllib.request.Request(address, body, method=method)  # noqa: S310 (loopback)
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310 (likewise)
            pass

    def ledger(self, key: str) -> dict[str, Any]:
        """What the counterpart knows of an account."""
        with urllib.request.urlopen(f"{self.base_url}/ledger/{key}", timeout=30) as answer:  # noqa: S310 (loopback)
            return json.load(answer)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@dataclass(frozen=True)
class Fault:
    """What `strace` does to the `when`-th system call of a name, in whichever thread comes to it first.

    Attributes:
        call: Name of the system call; or several, separated by commas.
        when: The first is 1; `3+` is the third and all after it.
        what: `signal=KILL`, `error=ENOSPC`, ….
        path: Only calls on this file.
    """

    call: str
    when: int | str
    what: str = "signal=KILL"
    path: Path | None = None

    def command(self, pid: int, log: Path) -> list[str]:
        """How strace is told."""
        only = [] if self.path is None else ["-P", str(self.path)]
        inject = f"inject={self.call}:{self.what}:when={self.when}"
        return ["strace", "-f", "-qq", "-o", str(log), *only, "-e", f"trace={self.call}", "-e", inject, "-p", str(pid)]


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, or minus the signal that killed it."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of standard output."""
        return json.loads(self.out.splitlines()[-1])


@dataclass
class Running:
    """A command that has been let loose."""

    pid: int
    folder: Path
    waiter: threading.Thread
    code: list[int] = field(default_factory=list)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.code:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self) -> Ended:
        """Until it ends by itself or by what was done to it.

        Raises:
            AssertionError: it does neither; it is ended then.
        """
        self.waiter.join(HANGS_S)
        if self.waiter.is_alive():
            self.signal(signal.SIGKILL)
            self.waiter.join()
            raise AssertionError(f"It hangs. {(self.folder / 'err').read_text('utf-8', 'replace')[-2000:]}")
        return Ended(self.code[0], *((self.folder / name).read_text("utf-8", "replace") for name in ("out", "err")))


class Nursery:
    """Where commands are forked from; one at a time."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, HERE / "nursery.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**env, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def start(
        self, *argv: object, env: dict[str, str], fault: Fault | None = None, limits: dict[str, int] | None = None
    ) -> Running:
        """Start `lightmeter ARGV…` in a process of its own, under strace if a fault is given."""
        out, err = self.folder / "out", self.folder / "err"
        order = {"argv": [*map(str, argv)], "env": env, "out": str(out), "err": str(err), "limits": limits or {}}
        self._say(json.dumps(order))
        running = Running(self._hear(), self.folder, threading.Thread())
        tracer = self._trace(running.pid, fault) if fault else None
        self._say("go")

        def wait() -> None:
            running.code.append(self._hear())
            if tracer is not None:
                tracer.wait()

        running.waiter = threading.Thread(target=wait)
        running.waiter.start()
        return running

    def run(self, *argv: object, **how: Any) -> Ended:
        """Start it and wait for its end."""
        return self.start(*argv, **how).wait()

    def most_calls(self) -> int:
        """How many calls the last tracer has seen in the thread that made most of them."""
        lines = (self.folder / "trace").read_text("utf-8", "replace").splitlines()
        made = Counter(line.split()[0] for line in lines if "(" in line)
        return max(made.values(), default=0)

    def _trace(self, pid: int, fault: Fault) -> subprocess.Popen[bytes]:
        said = (self.folder / "strace").open("wb")
        with said:
            tracer = subprocess.Popen(fault.command(pid, self.folder / "trace"), stdout=said, stderr=said)
        deadline = time.monotonic() + TRACED_S
        while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
            if tracer.poll() is not None or time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                raise RuntimeError((self.folder / "strace").read_text())
            time.sleep(0.001)
        return tracer

    def _say(self, text: str) -> None:
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> int:
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def strace_works(folder: Path) -> bool:
    """Whether this machine has strace and lets it take hold of a process."""
    if shutil.which("strace") is None or not Path("/proc/self/status").exists():
        return False
    told = ["strace", "-qq", "-o", str(folder / "probe"), "-e", "inject=getppid:signal=KILL:when=1"]
    ended = subprocess.run([*told, sys.executable, "-c", "import os; os.getppid()"], capture_output=True, check=False)
    sleeper = subprocess.Popen(["sleep", "20"])
    attached = subprocess.Popen(
        ["strace", "-qq", "-o", str(folder / "probe"), "-p", str(sleeper.pid)], stderr=subprocess.PIPE
    )
    deadline, traced = time.monotonic() + TRACED_S, False
    while not traced and attached.poll() is None and time.monotonic() < deadline:
        traced = "TracerPid:\t0\n" not in Path(f"/proc/{sleeper.pid}/status").read_text()
        time.sleep(0.005)
    sleeper.kill()
    sleeper.wait()
    attached.communicate()
    return traced and ended.returncode in {KILLED, 128 + signal.SIGKILL}
