"""Export during a run: a child process follows the journal and adds answered requests to the tables.

It adds a request only when it is answered and its charge is known, because the result can no longer change then.
The export has its own process, because decoding answers would block the event loop that sends requests. The process
runs this module with `python -m`, because `multiprocessing` would import the user's script again. It ends when its
standard input is closed, which also happens if the run is killed. If it fails, the export at the end of the run writes
the missing rows.
"""

from __future__ import annotations

import logging
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from lightmeter.child_processes import child_environment
from lightmeter.errors import LightmeterError
from lightmeter.export.export_tables import export_settled
from lightmeter.export.unexported_requests import MIN_SHARD_REQUESTS
from lightmeter.journal.queries.submissions import count_submissions_in
from lightmeter.journal.store import open_read_only
from lightmeter.journal.submission_states import State
from lightmeter.stop_signals import ignore_stop_signals

log = logging.getLogger("lightmeter.export")

EXPORT_EVERY_S: Final = 30.0
"""Requests that can be exported wait at most this number of seconds for the next export."""

_CHECK_EVERY_S: Final = 1.0


class LiveExport:
    """Starts and stops a child process that adds answered requests to the tables in the folder `out` during a run."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._process: subprocess.Popen[bytes] | None = None
        self._is_started = False

    def start_if_due(self, seconds: float, answered: int) -> None:
        """Start the export process if it is time to do so and it was not started before.

        It is time after `EXPORT_EVERY_S` seconds, or after `MIN_SHARD_REQUESTS` answered rows.

        Args:
            seconds: Seconds since the run was started or resumed.
            answered: Number of rows answered since the run was started or resumed.
        """
        if self._is_started or (seconds < EXPORT_EVERY_S and answered < MIN_SHARD_REQUESTS):
            return
        self._is_started = True
        # -P: import no module from the working directory. New session: Ctrl-C does not reach the process.
        command = [sys.executable, "-P", "-m", "lightmeter.export.live_export", str(self._out.absolute())]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(  # noqa: S603 (this Python, with a module of ours)
                command, stdin=pipe, stdout=null, stderr=null, start_new_session=True, env=child_environment()
            )
        except OSError as error:
            log.warning(
                "Cannot start a process to write tables during the run (%s): they are written at its end.", error
            )

    def stop(self) -> None:
        """Tell the export process to stop, and wait until it has finished its current export and ended."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


def _follow_journal(out: Path) -> None:
    """Add settled requests of the run in `out` to its tables again and again, until standard input is closed.

    A request is settled if it is answered and its charge is known. An export happens when `MIN_SHARD_REQUESTS` new
    requests are settled, or after `EXPORT_EVERY_S` seconds if at least one is.
    """
    exported, exported_at = 0, 0.0
    while not select.select([sys.stdin], [], [], _CHECK_EVERY_S)[0]:
        with open_read_only(out) as db:
            settled = count_submissions_in(db, State.SETTLED)
        is_late = time.monotonic() - exported_at >= EXPORT_EVERY_S
        if settled - exported >= MIN_SHARD_REQUESTS or (settled > exported and is_late):
            export_settled(out)
            exported, exported_at = settled, time.monotonic()


if __name__ == "__main__":
    ignore_stop_signals()
    try:
        _follow_journal(Path(sys.argv[1]))
    except (LightmeterError, OSError) as error:
        log.warning("%s", error)
        sys.exit(1)
