"""Forks commands from a process that has imported all modules, so that each starts at once.

It reads orders as JSON lines from standard input: `{"argv", "env", "cwd", "out", "err", "limits"}`. For each order it
writes the new process's id, waits for a line, during which a tracer can attach, starts the command, and writes its exit
code. The order `{"copy": [ORDERS, ANSWERS]}` forks the server itself; the copy uses these two named pipes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
from contextlib import suppress
from typing import Any

PRELOADED = (
    "lightmeter.cli.commands.plan",
    "lightmeter.cli.commands.run",
    "lightmeter.cli.commands.sql",
    "lightmeter.cli.commands.serve",
    "lightmeter.cli.commands.status",
    "lightmeter.export.export_tables",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "aiohttp.web",
    "apsw",
    "numpy.ma",
    "pandas",  # pyarrow imports it for its first array
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
)
"""What a run imports, at its start or later; together these take two seconds."""


def child(order: dict[str, Any], gate: int) -> None:
    """Become the command of an order, once the pipe `gate` has a byte; never return."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    err = os.open(order["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for place, file in enumerate((nothing, out, err)):
        os.dup2(file, place)
    os.environ.update(order["env"])
    sys.path[:0] = filter(None, order["env"].get("PYTHONPATH", "").split(os.pathsep))  # as a new interpreter does
    os.chdir(order["cwd"])
    for name, most in order.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (most, most))
    sys.argv = ["lightmeter", *order["argv"]]
    os.read(gate, 1)
    from lightmeter.cli import main  # noqa: PLC0415 (the fork server has it already)

    main()


def copy(orders: str, answers: str) -> None:
    """Fork this server; the copy reads orders from one named pipe and writes answers to another."""
    if os.fork() == 0:
        os.dup2(os.open(orders, os.O_RDONLY), 0)
        os.dup2(os.open(answers, os.O_WRONLY), 1)


def serve() -> bool:
    """Execute one order; return False at the end of the input. The child process never returns."""
    line = sys.stdin.buffer.readline()
    if not line:
        return False
    order = json.loads(line)
    if "copy" in order:
        copy(*order["copy"])
        return True
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        child(order, gate)
    os.close(gate)
    os.write(1, b"%d\n" % pid)
    sys.stdin.buffer.readline()
    os.write(opener, b"!")
    os.close(opener)
    _, status = os.waitpid(pid, 0)
    os.write(1, b"%d\n" % os.waitstatus_to_exitcode(status))
    return True


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a command's garbage collector would touch, and so copy, the memory of all modules
    while serve():
        pass
    with suppress(ChildProcessError):
        while os.wait():  # copies
            pass
