"""The program of the process that sends the rows of a run; `lightmeter.api.sending_process` starts it.

It reads one line of JSON from its standard input, sends all rows with one session, and prints a line of JSON whenever
the run has made progress. It stops early when its standard input ends, which means that its caller closed it or no
longer exists. It then sends no more requests, stores the answers to the requests in flight, and writes the tables.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Final

from pydantic import SecretStr

from lightmeter.api.run_result import Run
from lightmeter.api.run_steps import StartArguments, stream_folder
from lightmeter.api.streaming_run import stream_manifest
from lightmeter.errors import LightmeterError
from lightmeter.export.export_tables import export_tables
from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.items import count_planned_rows
from lightmeter.journal.queries.pending_rows import has_unfinished_rows
from lightmeter.journal.store import open_read_only
from lightmeter.options import Options, make_options
from lightmeter.planning.progress import Progress
from lightmeter.settings import read_settings
from lightmeter.stop_signals import on_stop_signals

_INTERVAL_S: Final = 0.5
"""Minimum time between two lines of progress, in seconds."""

_SHARDS_AHEAD: Final = 64
"""Maximum number of unfinished shards examined for one line of progress; a run may have thousands of shards."""


class _Shards:
    """Finds the finished shards of the run in `folder`: those whose rows all have a final status.

    A shard is a range of `rows_each` rows in the order of sending. The last shard may have fewer rows.
    """

    def __init__(self, folder: Path, rows_each: int) -> None:
        self._folder = folder
        self._rows_each = rows_each
        self._waiting: list[int] = []
        self._known = 0

    def newly_finished(self, *, planning: bool, most: int | None) -> tuple[int, list[int]]:
        """Return how many rows are planned, and the numbers (from 0) of the shards that finished since the last call.

        Args:
            planning: Whether rows may still be added to the run. If so, an incomplete last shard is not counted yet.
            most: Maximum number of unfinished shards to look at, from the first; None means all.
        """
        finished = []
        with open_read_only(self._folder) as db:
            rows = count_planned_rows(db)
            known = rows // self._rows_each if planning else -(-rows // self._rows_each)
            self._waiting.extend(range(self._known, known))
            self._known = max(known, self._known)
            for number in self._waiting[:most]:
                first = number * self._rows_each
                if not has_unfinished_rows(db, first, first + self._rows_each - 1):
                    finished.append(number)
        self._waiting = sorted(set(self._waiting) - set(finished))
        return rows, finished


def error_to_json(error: LightmeterError | None) -> dict[str, str] | None:
    """Return an error as a JSON object with the keys `type`, `message` and `hint`; None for None."""
    return None if error is None else {"type": type(error).__name__, "message": str(error), "hint": error.hint}


def _print(line: dict[str, Any]) -> None:
    with suppress(OSError):  # nobody reads it any more
        os.write(sys.stdout.fileno(), json.dumps(line).encode() + b"\n")


def _steps(request: dict[str, Any], stop: asyncio.Event) -> AsyncGenerator[Progress | Run]:
    """Return a generator that sends the rows of a run: it yields progress, and at last the run.

    If `request` has a manifest (`source`), it is read and planned while its rows are sent. Otherwise the rows are
    planned already.

    Args:
        request: The JSON object that the parent process sent; `_send` describes it.
        stop: An event; once it is set, no more rows are sent, and the generator yields the run and ends.
    """
    given = {"base_url": request["base_url"]} if request["base_url"] else {}
    if request["api_key"] is not None:
        given["api_key"] = SecretStr(request["api_key"])
    settings, out = read_settings().model_copy(update=given), Path(request["out"])
    arguments = StartArguments(tables=False, consent=True)  # the caller has checked what needs consent
    if request["source"] is None:
        header = read_run_header(out)
        options = header.options if request["options"] is None else Options.model_validate(request["options"])
        arguments = replace(arguments, run_id=request["run_id"] or header.run_id)
        return stream_folder(out, options, arguments, stop, settings)
    return stream_manifest(request["source"], out, make_options(**request["options"]), arguments, stop, settings)


async def _send(request: dict[str, Any]) -> LightmeterError | None:
    """Send the rows of a run until all are done, standard input ends, or a signal comes; print progress meanwhile.

    Return the error that stopped the run early, or None. `request` is the JSON object that the parent process sent. Its
    keys are:

    - `out`: the output folder.
    - `shard_rows`: number of rows of each shard; the progress tells which shards are finished.
    - `source`: path or URI of a manifest to plan and send; None to send the run that is planned in `out`.
    - `options`: the options of the run, as JSON; None means those of the run that is planned in `out`.
    - `run_id`: id of the run that is planned in `out`; None means the run that `out` holds.
    - `api_key`, `base_url`: key and address of the service; None means those of the settings that this process reads.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_for_caller() -> None:
        with suppress(OSError):
            os.read(sys.stdin.fileno(), 1)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop.set)

    Thread(target=wait_for_caller, daemon=True).start()
    shards, printed_at, latest = _Shards(Path(request["out"]), request["shard_rows"]), 0.0, None
    with on_stop_signals(stop.set):
        async with aclosing(_steps(request, stop)) as steps:
            async for step in steps:
                if isinstance(step, Progress):
                    latest = step
                    if monotonic() - printed_at >= _INTERVAL_S and step.phase in {"running", "draining", "stopping"}:
                        _print(await asyncio.to_thread(_progress_line, shards, step, _SHARDS_AHEAD))
                        printed_at = monotonic()
                    continue
                if latest is not None:
                    _print(await asyncio.to_thread(_progress_line, shards, latest, None))
                if stop.is_set():
                    await asyncio.to_thread(export_tables, step.folder, rewrite_all=request["source"] is not None)
                return step.stopped_by
    raise AssertionError("a run ends with a run")


def _progress_line(shards: _Shards, step: Progress, most: int | None) -> dict[str, Any]:
    """Return the JSON object that tells the parent process how far the run is.

    Its keys are:

    - `rows`: number of rows planned so far.
    - `share_done`: share of these rows that have a final status, 0 to 1.
    - `planning`: whether more rows may be planned, because the manifest is still being read.
    - `paid`: credits that the whole run has paid so far.
    - `finished_shards`: numbers, from 0, of the shards that finished since the last call.

    Args:
        shards: Knows the shards of the run.
        step: The progress of the run.
        most: Maximum number of unfinished shards to look at; None means all.
    """
    rows, finished = shards.newly_finished(planning=step.planning, most=most)
    return {
        "rows": rows,
        "share_done": step.finished / step.rows if step.rows else 1.0,
        "planning": step.planning,
        "paid": step.paid,
        "finished_shards": finished,
    }


def main() -> None:
    """Read from standard input which run to send, send its rows, and print the progress and at last the outcome.

    The input is one line with a JSON object. Its keys are `out`, `shard_rows`, `source`, `options`, `run_id`, `api_key`
    and `base_url`; `_send` describes them. If the input is empty, do nothing.

    The outcome is a JSON object. Its key `stopped_by` has the `Run.stopped_by` of the run, and `error` a
    `LightmeterError` that was raised instead. Each is an object as `error_to_json` makes it, or null.
    """
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as pipe:
        line = pipe.readline()
    if not line:  # the caller is gone
        return
    result: dict[str, Any] = {"stopped_by": None, "error": None}
    try:
        result["stopped_by"] = error_to_json(asyncio.run(_send(json.loads(line))))
    except LightmeterError as error:
        result["error"] = error_to_json(error)
    _print(result)


if __name__ == "__main__":
    main()
