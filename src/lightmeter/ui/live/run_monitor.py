"""`RunMonitor`: one thread that reads the state of a run for all pages and clients that look at the run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, RLock, Thread
from typing import Final

from lightmeter.ui.live.run_snapshot import Snapshot, SnapshotReader

INTERVAL_S: Final = 1.0
"""Default number of seconds that a `RunMonitor` waits before it reads the run's state again."""

Receiver = Callable[[Snapshot], None]

_log: Final = logging.getLogger(__name__)


class RunMonitor:
    """Reads a run's state once a second, and gives each changed state to its subscribers.

    A state is a snapshot: a dict with rows, credits, rates and so on. The thread that reads runs only while there are
    subscribers.
    """

    def __init__(self, folder: Path, interval_s: float = INTERVAL_S) -> None:
        """Create the monitor of the run in `folder`. It reads the run's state every `interval_s` seconds."""
        self._reader = SnapshotReader(folder)
        self._interval_s = interval_s
        self._lock = RLock()
        self._read_lock = Lock()
        self._receivers: list[Receiver] = []
        self._stop: Event | None = None
        self._last: Snapshot | None = None

    def subscribe(self, receiver: Receiver) -> Callable[[], None]:
        """Call `receiver` with each changed snapshot of the run from now on; return a function that ends this.

        If a snapshot was read already, `receiver` gets it at once. Later calls come from another thread.
        """
        with self._lock:
            self._receivers.append(receiver)
            if self._stop is None:
                self._stop = Event()
                Thread(target=self._run, args=(self._stop,), name="lightmeter-run-monitor", daemon=True).start()
            if self._last is not None:
                receiver(self._last)

        def unsubscribe() -> None:
            with self._lock:
                if receiver in self._receivers:
                    self._receivers.remove(receiver)
                if not self._receivers and self._stop is not None:
                    self._stop.set()
                    self._stop = self._last = None

        return unsubscribe

    def _run(self, stop: Event) -> None:
        while not stop.is_set():
            try:
                with self._read_lock:  # the former thread may still read
                    snapshot = self._reader.read()
            except Exception as error:  # noqa: BLE001 (the page must show any error)
                _log.exception("A snapshot of the run failed.")
                snapshot = {"error": {"message": f"{type(error).__name__}: {error}", "hint": ""}}
            self._publish(snapshot, stop)
            stop.wait(self._interval_s)

    def _publish(self, snapshot: Snapshot, stop: Event) -> None:
        with self._lock:
            if stop.is_set() or snapshot == self._last:
                return
            self._last = snapshot
            for receive in list(self._receivers):  # (with the lock, so that no older snapshot comes after it)
                receive(snapshot)
