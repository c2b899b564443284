"""The views (pages such as the gallery and the live page) that `lightmeter ui` offers for a run."""

from __future__ import annotations

from pathlib import Path

from lightmeter.ui.gallery.explorer import ExplorerView
from lightmeter.ui.live.live_run import LiveRunView
from lightmeter.ui.live.run_monitor import RunMonitor
from lightmeter.ui.planner.planner import PlannerView
from lightmeter.ui.review.review import ReviewView
from lightmeter.ui.web.web_server import WebView


def run_views(folder: Path, *, allow_review: bool = False) -> dict[str, WebView]:
    """Return name (such as `explorer`) → view of the run in `folder`, in the order of the navigation bar.

    Args:
        folder: The output folder of the run.
        allow_review: Whether the view `review` may write decisions. The gallery may store its filters in any case.
    """
    monitor = RunMonitor(folder)
    return {
        "explorer": WebView("Gallery", lambda: ExplorerView(folder)),
        "planner": WebView("Planner", lambda: PlannerView.for_run(folder)),
        "review": WebView("Review", lambda: ReviewView(folder, may_write=allow_review)),
        "run": WebView("Run", lambda: LiveRunView(monitor)),
    }
