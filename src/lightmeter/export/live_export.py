"""Tables while a run goes on: a process of its own follows the journal, and adds to the tables what is settled.

A process, because decoding answers would keep this one's event loop from its requests. It is a module that Python runs,
not a process of `multiprocessing`, which would import the user's script again. It ends when its standard input does, so
also when the run is killed; whatever becomes of it, the export at the end of the run writes what is missing.
"""

from __future__ import annotations

import logging
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from lightmeter.errors import LightmeterError
from lightmeter.export.export_tables import export_settled
from lightmeter.export.published_shards import SHARD_ANSWERS
from lightmeter.journal.export_queries import count_settled
from lightmeter.journal.store import open_read_only

__all__ = ["EXPORT_EVERY_S", "LiveExport"]

log = logging.getLogger("lightmeter.export")

EXPORT_EVERY_S: Final = 30.0
"""Seconds after which settled submissions are in the tables, however few they are."""

_CHECK_EVERY_S: Final = 1.0


class LiveExport:
    """Starts and ends the process that exports a run while it goes on.

    Args:
        out: The output folder.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._process: subprocess.Popen[bytes] | None = None
        self._is_started = False

    def start_if_due(self, seconds: float, answered: int) -> None:
        """Start the process once a run takes long enough to need it.

        Args:
            seconds: Time since the start of the run.
            answered: Rows that this start has answered.
        """
        if self._is_started or (seconds < EXPORT_EVERY_S and answered < SHARD_ANSWERS):
            return
        self._is_started = True
        # -P: no module of the working directory. A session of its own: Ctrl-C does not reach it.
        command = [sys.executable, "-P", "-m", "lightmeter.export.live_export", str(self._out.absolute())]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(  # noqa: S603 (this Python, with a module of ours)
                command, stdin=pipe, stdout=null, stderr=null, start_new_session=True
            )
        except OSError as error:
            log.warning("No process to write tables while the run goes on (%s): they are written at its end.", error)

    def stop(self) -> None:
        """Wait until the process has published what it is exporting, and has ended."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


def _follow(out: Path) -> None:
    """Export what is settled, until standard input ends: every `SHARD_ANSWERS` answers, and every `EXPORT_EVERY_S`."""
    exported, exported_at = 0, 0.0
    while not select.select([sys.stdin], [], [], _CHECK_EVERY_S)[0]:
        with open_read_only(out) as db:
            settled = count_settled(db)
        is_late = time.monotonic() - exported_at >= EXPORT_EVERY_S
        if settled - exported >= SHARD_ANSWERS or (settled > exported and is_late):
            export_settled(out)
            exported, exported_at = settled, time.monotonic()


if __name__ == "__main__":
    try:
        _follow(Path(sys.argv[1]))
    except (LightmeterError, OSError) as error:
        log.warning("%s", error)
        sys.exit(1)
