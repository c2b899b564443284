"""The processes of a test: the simulated service, the fork server, its commands, and strace to disturb them.

To kill a command at a system call, `strace` counts the calls of one name in each thread and sends the signal instead of
the N-th call. So N = 1, 2, 3, … covers every step that reaches the disk or the network.
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
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KILLED = -signal.SIGKILL
ATTACH_TIMEOUT_S = 20.0
START_TIMEOUT_S = 120.0
RUN_TIMEOUT_S = 60.0
"""Longest time that a command may take, in seconds; none needs a tenth of it."""


class ServiceProcess:
    """The simulated service, in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, HERE / "simulated_service.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.base_url = self._process.stdout.readline().strip()
        self._accounts = 0

    def account(self, **rules: Any) -> str:
        """Return the key of a new account with these rules."""
        self._accounts += 1
        key = f"key{self._accounts}"
        self.rules(key, **rules)
        return key

    def rules(self, key: str, **rules: Any) -> None:
        """Change the rules of an account; faults that are not in `rules` end."""
        self._send("POST", key, rules)

    def change_balance(self, key: str, credits_: int) -> None:
        """Add credits to an account, or remove some if below 0, as another user of the account would."""
        self._send("PUT", key, credits_)

    def _send(self, method: str, key: str, what: Any) -> None:
        body, address = json.dumps(what).encode(), f"{self.base_url}/ledger/{key}"
        request = urllib.request.Request(address, body, method=method)  # noqa: S310 (loopback)
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310 (likewise)
            pass

    def ledger(self, key: str) -> dict[str, Any]:
        """Return the service's own record of an account."""
        with urllib.request.urlopen(f"{self.base_url}/ledger/{key}", timeout=30) as answer:  # noqa: S310 (loopback)
            return json.load(answer)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@dataclass(frozen=True)
class Fault:
    """A fault that `strace` injects into the `when`-th system call of a name in any thread.

    Attributes:
        call: Name of the system call, or several names separated by commas.
        when: Number of the call, from 1; `3+` means the third and all later ones.
        what: The fault as strace spells it, such as `signal=KILL` or `error=ENOSPC`.
        path: If set, only calls on this file count.
    """

    call: str
    when: int | str
    what: str = "signal=KILL"
    path: Path | None = None

    def command(self, pid: int, log: Path) -> list[str]:
        """Return the strace command that injects the fault into a process."""
        only = [] if self.path is None else ["-P", str(self.path)]
        inject = f"inject={self.call}:{self.what}:when={self.when}"
        return ["strace", "-f", "-qq", "-o", str(log), *only, "-e", f"trace={self.call}", "-e", inject, "-p", str(pid)]


@dataclass(frozen=True)
class CommandResult:
    """The exit code of a command, or minus the signal that killed it, and its output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The JSON object in the last line of standard output."""
        return json.loads(self.out.splitlines()[-1])


@dataclass
class RunningCommand:
    """A command that has started."""

    pid: int
    folder: Path
    waiter: threading.Thread
    code: list[int] = field(default_factory=list)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the command has ended."""
        if not self.code:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def first_line(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Wait for the first line of the command's output; the line is empty if the command ends before."""
        deadline = time.monotonic() + timeout_s
        while not (line := (self.folder / "out").read_text().partition("\n"))[1] and not self.code:
            assert time.monotonic() < deadline, (self.folder / "err").read_text()
            time.sleep(0.01)
        return line[0]

    def wait(self, timeout_s: float = RUN_TIMEOUT_S) -> CommandResult:
        """Wait for the end of the command, for at most `timeout_s` seconds.

        Raises:
            AssertionError: it does not end in time, and was killed.
        """
        self.waiter.join(timeout_s)
        if self.waiter.is_alive():
            self.signal(signal.SIGKILL)
            self.waiter.join()
            raise AssertionError(f"It hangs. {(self.folder / 'err').read_text('utf-8', 'replace')[-2000:]}")
        return CommandResult(
            self.code[0], *((self.folder / name).read_text("utf-8", "replace") for name in ("out", "err"))
        )


class ForkServer:
    """The process that forks commands, one at a time; copies of it run commands at the same time."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        process = subprocess.Popen(
            [sys.executable, HERE / "fork_server.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**env, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        self._process: subprocess.Popen[bytes] | None = process
        self._orders, self._answers = process.stdin, process.stdout

    def copy(self, folder: Path) -> ForkServer:
        """Return a fork of this fork server, whose commands write their output to a new folder."""
        folder.mkdir(parents=True)
        pipes = [folder / "orders", folder / "answers"]
        for pipe in pipes:
            os.mkfifo(pipe)
        self._send_line(json.dumps({"copy": [*map(str, pipes)]}))
        duplicate = copy(self)
        duplicate.folder, duplicate._process = folder, None
        duplicate._orders, duplicate._answers = pipes[0].open("wb"), pipes[1].open("rb")
        return duplicate

    def start(
        self, *argv: object, env: dict[str, str], fault: Fault | None = None, limits: dict[str, int] | None = None
    ) -> RunningCommand:
        """Start `lightmeter ARGV…` in a new process, under strace if there is a fault."""
        out, err = self.folder / "out", self.folder / "err"
        out.write_text("")  # not that of the last command
        order = {"argv": [*map(str, argv)], "env": env, "cwd": str(Path.cwd()), "out": str(out), "err": str(err)}
        order["limits"] = limits or {}
        self._send_line(json.dumps(order))
        running = RunningCommand(self._read_number(), self.folder, threading.Thread())
        tracer = self._attach_strace(running.pid, fault) if fault else None
        self._send_line("go")

        def wait() -> None:
            running.code.append(self._read_number())
            if tracer is not None:
                tracer.wait()

        running.waiter = threading.Thread(target=wait)
        running.waiter.start()
        return running

    def run(self, *argv: object, timeout_s: float = RUN_TIMEOUT_S, **how: Any) -> CommandResult:
        """Start a command as `start` does, and wait for its end."""
        return self.start(*argv, **how).wait(timeout_s)

    def count_busiest_thread_calls(self) -> int:
        """Return the number of calls in the last strace log by the thread that made most of them."""
        lines = (self.folder / "trace").read_text("utf-8", "replace").splitlines()
        calls_by_thread = Counter(line.split()[0] for line in lines if "(" in line)
        return max(calls_by_thread.values(), default=0)

    def _attach_strace(self, pid: int, fault: Fault) -> subprocess.Popen[bytes]:
        strace_log = (self.folder / "strace").open("wb")
        with strace_log:
            tracer = subprocess.Popen(fault.command(pid, self.folder / "trace"), stdout=strace_log, stderr=strace_log)
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
            if tracer.poll() is not None or time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                raise RuntimeError((self.folder / "strace").read_text())
            time.sleep(0.001)
        return tracer

    def _send_line(self, text: str) -> None:
        self._orders.write(text.encode() + b"\n")
        self._orders.flush()

    def _read_number(self) -> int:
        return int(self._answers.readline())

    def close(self) -> None:
        """End it."""
        self._orders.close()
        self._answers.read()
        self._answers.close()
        if self._process is not None:
            self._process.wait()


def settings_of_the_test() -> dict[str, str]:
    """Return the variables of lightmeter that the test has set, for a command."""
    return {name: value for name, value in os.environ.items() if name.startswith("LIGHTMETER_")}


def strace_works(folder: Path) -> bool:
    """Return whether this machine has strace and allows it to attach to a process."""
    if shutil.which("strace") is None or not Path("/proc/self/status").exists():
        return False
    command = ["strace", "-qq", "-o", str(folder / "probe"), "-e", "inject=getppid:signal=KILL:when=1"]
    result = subprocess.run(
        [*command, sys.executable, "-c", "import os; os.getppid()"], capture_output=True, check=False
    )
    sleeper = subprocess.Popen(["sleep", "20"])
    attached = subprocess.Popen(
        ["strace", "-qq", "-o", str(folder / "probe"), "-p", str(sleeper.pid)], stderr=subprocess.PIPE
    )
    deadline, traced = time.monotonic() + ATTACH_TIMEOUT_S, False
    while not traced and attached.poll() is None and time.monotonic() < deadline:
        traced = "TracerPid:\t0\n" not in Path(f"/proc/{sleeper.pid}/status").read_text()
        time.sleep(0.005)
    sleeper.kill()
    sleeper.wait()
    attached.communicate()
    return traced and result.returncode in {KILLED, 128 + signal.SIGKILL}
