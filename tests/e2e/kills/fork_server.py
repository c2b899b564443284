"""Forks commands from a process that has imported all modules, so that each starts at once.

It reads orders as JSON lines from standard input: `{"argv", "env", "cwd", "out", "err", "limits"}`. For each order it
writes the new process's id, waits for a line, during which a tracer can attach, starts the command, and writes its exit
code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
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
    os.chdir(order["cwd"])
    for name, most in order.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (most, most))
    sys.argv = ["lightmeter", *order["argv"]]
    os.read(gate, 1)
    from lightmeter.cli import main  # noqa: PLC0415 (the fork server has it already)

    main()


def serve() -> bool:
    """Execute one order; return False at the end of the input. The child process never returns."""
    line = sys.stdin.buffer.readline()
    if not line:
        return False
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        child(json.loads(line), gate)
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
