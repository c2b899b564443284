"""Sends the rows of a run in a separate process, which finishes its requests even if its caller is killed.

A scheduler cancels a job with SIGTERM to its process group, and sends SIGKILL soon after (Prefect: after 30 s). A
request in flight may take longer, and it may be charged although its answer has not arrived. The process that this
module starts gets neither signal. It sends all rows of a run with one session. It stops early when its caller closes
its standard input or no longer exists.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from lightmeter import errors
from lightmeter.api import resume_process
from lightmeter.api.run_result import output_folder
from lightmeter.child_processes import child_environment
from lightmeter.embedded_service import provider_variables
from lightmeter.errors import LightmeterError, SendingProcessDied
from lightmeter.journal.header import read_run_header
from lightmeter.options import Options
from lightmeter.settings import Settings

_LINE_BYTES: Final = 1 << 24
"""Maximum length of a line of progress in bytes; the final line may name thousands of shards."""

_PREFIXES: Final = ("LIGHTMETER_", "OTEL_", "XDG_", "AWS_", "AZURE_", "GOOGLE_", "HF_", "PYICEBERG_")
"""Starts of the names of environment variables that the process gets: settings, telemetry, folders, object stores."""

_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_VARIABLES: Final = (
    *(*_PROXIES, *map(str.upper, _PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "OMP_NUM_THREADS"),
)
"""Environment variables that the process gets, too."""


class SendingProcess:
    """Handle of a separate process that sends the rows of one run; `start_sending_process` starts the process.

    A shard is a range of `shard_rows` rows in the order in which rows are sent.

    Attributes:
        shard_rows: Number of rows of each shard.
        rows: Number of rows of the run that are known to be planned; 0 before any is known.
        share_done: Share of the run's rows, 0 to 1, that have a final status.
        planning: Whether the run may get more rows, because the manifest is still being read.
        paid: Credits that the whole run has paid.
        ended: Whether the process has reported its outcome, which it does after the last answers, or has died.
    """

    def __init__(self, process: Process, out: Path | str, shard_rows: int, rows: int | None) -> None:
        self.shard_rows = shard_rows
        self.rows = rows or 0
        self.share_done = 0.0
        self.planning = rows is None
        self.paid = 0
        self.ended = False
        self._out = out
        self._process = process
        self._finished_shards: set[int] = set()
        self._outcome: dict[str, Any] | None = None
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """Operating-system id of the process that sends the rows."""
        return self._process.pid

    def is_finished(self, first: int, last: int) -> bool:
        """Return whether the process has reported as finished all shards that contain the rows `first` to `last`.

        Both numbers are included, and count from 0 in the order of sending.
        """
        numbers = range(first // self.shard_rows, last // self.shard_rows + 1)
        return all(number in self._finished_shards for number in numbers)

    async def wait_until_known(self, first: int) -> bool:
        """Wait until all rows of the shard that begins at row `first` are planned; return True.

        Rows count from 0 in the order of sending. Return False if the run has no row `first`: the manifest is shorter,
        or the process ended before.
        """
        while self.planning and not self.ended and self.rows < first + self.shard_rows:
            await self.wait_for_change()
        return first < self.rows

    async def wait_until_finished(self, first: int, last: int) -> bool:
        """Wait until the process has reported all shards with the rows `first` to `last` as finished; return True.

        Both numbers are included, and count from 0 in the order of sending. Return False if the process ends before.
        """
        while not self.ended and not self.is_finished(first, last):
            await self.wait_for_change()
        return self.is_finished(first, last)

    async def wait_for_change(self) -> None:
        """Wait until the process reports progress, or ends."""
        await self._changed.wait()

    async def wait_until_ended(self) -> None:
        """Wait until the process has reported its outcome, after the last answers, or has died."""
        while not self.ended:
            await self.wait_for_change()

    async def outcome(self) -> LightmeterError | None:
        """Wait until the process has ended; return the `Run.stopped_by` of its run: why it stopped early, or None.

        Raises:
            SendingProcessDied: The process was killed or crashed.
            LightmeterError: The process raised this error instead of returning a run.
        """
        await asyncio.shield(self._reading)
        await _wait_for_end(self._process)
        if self._outcome is None or self._process.returncode != 0:
            raise SendingProcessDied(
                f"The process that sends the rows of {self._out} ended with code {self._process.returncode}.",
                hint="Continue the run: requests in flight are settled first.",
            )
        if self._outcome["error"] is not None:
            raise _error_from_json(self._outcome["error"])
        stopped_by = self._outcome["stopped_by"]
        return None if stopped_by is None else _error_from_json(stopped_by)

    async def close(self) -> None:
        """Let the process send no more requests, and wait until it has stored the answers to its requests in flight."""
        assert self._process.stdin is not None  # noqa: S101 (it is a pipe)
        self._process.stdin.close()
        await _wait_for_end(self._process)
        await asyncio.wait({self._reading})

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 (it is a pipe)
        try:
            while line := await self._process.stdout.readline():
                with suppress(ValueError):  # a line of a process that was killed while it wrote
                    self._take(json.loads(line))
        finally:
            self.ended = True
            self._changed.set()

    def _take(self, line: dict[str, Any]) -> None:
        if "error" in line:
            self._outcome = line
            self.ended = True
        else:
            self.rows, self.planning = line["rows"], line["planning"]
            self.share_done, self.paid = line["share_done"], line["paid"]
            self._finished_shards.update(line["finished_shards"])
        self._changed.set()
        self._changed = asyncio.Event()
        if self.ended:
            self._changed.set()


@asynccontextmanager
async def start_sending_process(  # noqa: PLR0913 (each is sent to the process)
    out: Path | str,
    settings: Settings,
    *,
    shard_rows: int,
    rows: int | None = None,
    source: str | None = None,
    options: Options | None = None,
    run_id: str | None = None,
) -> AsyncIterator[SendingProcess]:
    """Start a process that sends the pending rows of a run. When the `with` block ends, stop it and wait for answers.

    The process inherits only the environment variables that a run may need: those of lightmeter, of telemetry, of
    proxies, of object stores, and of the providers that the run names.

    If the caller's task is cancelled, the block ends once the requests in flight are answered and stored. The process
    writes the tables only if it is stopped early.

    Args:
        out: The output folder of the run.
        settings: The user's settings. Their key and service address replace those that the process would read itself.
        shard_rows: Number of rows of each shard. The process reports each shard that is finished.
        rows: Number of rows of the run; None if it is not planned yet.
        source: A manifest to send while it is being read. None sends the run that is planned in `out`. This function
            does not check whether the run needs the user's consent: see `lightmeter.planning.consent`.
        options: The options of the run; None means those of the run that is planned in `out`.
        run_id: Id of the planned run. If another process has started another run in `out`, nothing is sent. None means
            the run that `out` holds.

    Raises:
        JournalError: there are no options, and `out` holds no run.
    """
    command = (sys.executable, "-P", "-m", resume_process.__name__)
    folder = output_folder(out)
    names = provider_variables(options or read_run_header(folder).options, settings)
    environment = child_environment({*names, *_VARIABLES}, _PREFIXES)
    environment.pop("LIGHTMETER_API_KEY", None)  # it is sent through the pipe
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, start_new_session=True, limit=_LINE_BYTES, env=environment
    )
    sender = SendingProcess(process, out, shard_rows, rows)
    assert process.stdin is not None  # noqa: S101 (it is a pipe)
    request = {
        "out": str(folder),
        "shard_rows": shard_rows,
        "source": source,
        "options": None if options is None else options.model_dump(mode="json"),
        "run_id": run_id,
        "api_key": None if settings.api_key is None else settings.api_key.get_secret_value(),
        "base_url": settings.base_url,
    }
    try:
        with suppress(ConnectionError):  # the process has ended: `outcome` says so
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
        yield sender
    finally:
        await sender.close()


async def _wait_for_end(process: Process) -> None:
    """Wait until `process` has ended.

    If this task is canceled meanwhile, go on waiting, then raise CancelledError.
    """
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
