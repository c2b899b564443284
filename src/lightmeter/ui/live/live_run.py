"""`LiveRunView`: the Python object behind the live page, which shows the progress of a run."""

from __future__ import annotations

from pathlib import Path

import traitlets

from lightmeter.ui.live.run_monitor import RunMonitor
from lightmeter.ui.live.run_snapshot import Snapshot
from lightmeter.ui.view_model import ViewModel


class LiveRunView(ViewModel):
    """The live page of a run, in progress in any process or ended: rows, credits, rates and what is left to do.

    Attributes:
        snapshot: What the page shows; it changes at most once a second. Its key `error` has a message
            and a hint if the journal cannot be read, else None.
    """

    snapshot = traitlets.Dict().tag(sync=True)

    def __init__(self, run: RunMonitor | Path | str) -> None:
        """Create the live page of the run in a folder, or of the run that a `RunMonitor` reads."""
        super().__init__()
        monitor = run if isinstance(run, RunMonitor) else RunMonitor(Path(run))
        self._unsubscribe = monitor.subscribe(self._show)

    def _show(self, snapshot: Snapshot) -> None:
        # An error leaves what is known on the page.
        self.snapshot = {**self.snapshot, "error": None, **snapshot}

    def close_view(self) -> None:
        """Stop reading the journal."""
        self._unsubscribe()
