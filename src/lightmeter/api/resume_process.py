"""Run a range of rows in a process with its own session, which finishes its requests when its caller is killed.

Schedulers cancel a job with SIGTERM to its process group, and send SIGKILL soon after (Prefect: after 30 s). A request
in flight may take longer, and its answer may have been charged. The process that this module starts gets neither
signal. It stops early when its standard input ends, because the caller closed it or no longer exists: it then sends no
more requests, stores the answers of those in flight, and writes the tables.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import aclosing, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from lightmeter import errors
from lightmeter.api.run_result import Run
from lightmeter.api.runs import stream_resume
from lightmeter.errors import LightmeterError
from lightmeter.export.export_tables import export_tables


async def resume_in_process(out: Path | str, first: int, last: int) -> LightmeterError | None:
    """Continue a run, for some of its rows, in a process of its own; return the error that stopped the run, or None.

    If the caller's task is canceled, wait until the requests in flight are answered and stored. Tables are written
    only when the run stops early by cancellation.

    Args:
        out: The output folder of the run.
        first: Index of the first row in the order in which rows are sent, from 0.
        last: Index of the last row in that order, included.

    Raises:
        LightmeterError: what `lightmeter.resume` raises.
        RuntimeError: the process was killed.
    """
    command = (sys.executable, "-m", __spec__.name, str(out), str(first), str(last))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
    assert process.stdin is not None  # noqa: S101 (it is a pipe)
    assert process.stdout is not None  # noqa: S101 (likewise)
    try:
        printed = await process.stdout.read()
    finally:
        process.stdin.close()
        await _wait_for_end(process)
    if process.returncode != 0:
        raise RuntimeError(
            f"The process of rows {first} to {last} of {out} ended with code {process.returncode}. Continue the run: "
            "requests in flight are settled first."
        )
    result = json.loads(printed)
    if result["error"] is not None:
        raise _error_from_json(result["error"])
    return None if result["stopped_by"] is None else _error_from_json(result["stopped_by"])


async def _wait_for_end(process: Process) -> None:
    """Wait until a process has ended; if this task is canceled meanwhile, raise CancelledError afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while process.returncode is None:
        try:
            await process.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _error_from_json(value: dict[str, str]) -> LightmeterError:
    error: LightmeterError = getattr(errors, value["type"])(value["message"], hint=value["hint"])
    return error


def _error_to_json(error: LightmeterError | None) -> dict[str, str] | None:
    return None if error is None else {"type": type(error).__name__, "message": str(error), "hint": error.hint}


async def _resume(out: str, first: int, last: int) -> LightmeterError | None:
    """Continue the run in folder `out` until rows `first` to `last` are done, standard input ends, or a signal comes.

    Return the error that stopped the run early, or None.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_for_caller() -> None:
        with suppress(OSError):
            os.read(sys.stdin.fileno(), 1)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop.set)

    Thread(target=wait_for_caller, daemon=True).start()
    with suppress(NotImplementedError):  # on Windows
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    async with aclosing(stream_resume(out, stop=stop, rows=(first, last), tables=False)) as steps:
        async for step in steps:
            if isinstance(step, Run):
                if stop.is_set():
                    await asyncio.to_thread(export_tables, step.folder)
                return step.stopped_by
    raise AssertionError("a run ends with a run")


def main() -> None:
    """Continue the run that the command line names (folder, first row, last row); print its outcome as JSON."""
    out, first, last = sys.argv[1:]
    result: dict[str, Any] = {"stopped_by": None, "error": None}
    try:
        result["stopped_by"] = _error_to_json(asyncio.run(_resume(out, int(first), int(last))))
    except LightmeterError as error:
        result["error"] = _error_to_json(error)
    with suppress(OSError):  # nobody reads it any more
        os.write(sys.stdout.fileno(), json.dumps(result).encode())


if __name__ == "__main__":
    main()
