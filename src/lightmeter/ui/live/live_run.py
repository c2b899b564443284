"""`LiveRunView`: the Python object behind the live page, which shows the progress of a run."""

from __future__ import annotations

from pathlib import Path

import traitlets

from lightmeter.paths import local_path
from lightmeter.ui.live.run_monitor import RunMonitor
from lightmeter.ui.live.run_snapshot import Snapshot
from lightmeter.ui.view_model import ViewModel


class LiveRunView(ViewModel):
    """The live page of a run: rows, credits, rates and what is left to do.

    The run may be in progress, also in another process, or ended.

    Attributes:
        snapshot: The latest `run_snapshot.Snapshot`; it changes at most once a second. Its key `error` is None, or a
            dict with `message` and `hint` if the journal cannot be read. The other keys then keep their values.
    """

    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(self, run: RunMonitor | Path | str) -> None:
        """Create the live page of a run. `run` is the run's folder, or a `RunMonitor` that pages can share."""
        super().__init__()
        monitor = run if isinstance(run, RunMonitor) else RunMonitor(local_path(run))
        self._unsubscribe = monitor.subscribe(self._show)

    def _show(self, snapshot: Snapshot) -> None:
        # An error leaves what is known on the page.
        self.snapshot = {**self.snapshot, "error": None, **snapshot}

    def close_view(self) -> None:
        """Stop reading the journal."""
        self._unsubscribe()
