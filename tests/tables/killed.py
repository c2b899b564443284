"""Runs commands in forked children that strace kills at a given system call; `test_kills.py` says which.

Jobs come as JSON on standard input: a list of [command, folder, call, nth]. The child is killed as it enters its NTH
CALL; with no CALL it runs to its end, and with the call "count" what it calls is counted. The answer is a list, on
standard output: -9 for killed, else the exit code, or the counts. What a command imports is imported once, before.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path

from lightmeter.cli import main as lightmeter_main
from lightmeter.export.export_tables import export_tables

for lazily in ("pandas", "duckdb", "lightmeter.cli.commands.rebuild"):
    import_module(lazily)

CALLS = ("openat", "write", "pwrite64", "rename", "renameat2", "fsync", "fdatasync", "unlink", "unlinkat")
PR_SET_PTRACER = 0x59616D61
ANYBODY = ctypes.c_ulong(-1)


def do(command: str, folder: str) -> int:
    """`rebuild` and `compact` are whole commands; `add` is what every run ends with."""
    if command == "add":
        export_tables(Path(folder))
        return 0
    sys.argv = ["lightmeter", command, folder]
    try:
        lightmeter_main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def forked(command: str, folder: str) -> tuple[int, int]:
    """A child that does it once a byte comes through the pipe; returns the child and the pipe's end."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child:
        os.close(ours)
        return child, theirs
    os.close(theirs)
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)  # else only an ancestor may trace, on some systems
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.read(ours, 1)
    code = 70
    try:
        code = do(command, folder)
    finally:
        os._exit(code)


def traced(command: str, folder: str, options: list[str]) -> int:
    child, pipe = forked(command, folder)
    # Not with --seccomp-bpf: some versions of strace then say that they killed and do not.
    strace = subprocess.Popen(["strace", "-f", "-p", str(child), *options], stderr=subprocess.PIPE, text=True)
    line = strace.stderr.readline()
    if "attached" not in line:
        os.kill(child, 9)
        sys.exit(f"strace cannot trace here: {line}")
    os.write(pipe, b"!")
    os.close(pipe)
    _, status = os.waitpid(child, 0)
    strace.communicate()
    return os.waitstatus_to_exitcode(status)


def job(command: str, folder: str, call: str | None, nth: int) -> int | dict[str, int]:
    if call is None:
        child, pipe = forked(command, folder)
        os.write(pipe, b"!")
        os.close(pipe)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if call == "count":
        with tempfile.NamedTemporaryFile("r") as log:
            traced(command, folder, ["-o", log.name, "-e", f"trace={','.join(CALLS)}"])
            return Counter(re.findall(r"^\d+ +(\w+)\(", log.read(), re.MULTILINE))
    only = ["-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={nth}"]
    return traced(command, folder, only)


if __name__ == "__main__":
    json.dump([job(*one) for one in json.load(sys.stdin)], sys.stdout)
