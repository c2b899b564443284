"""From which rows the planner makes a plan."""

from __future__ import annotations

from lightmeter.ui.planner.planner import PlannerView
from tests.ui.test_planner import pictures


def test_a_changed_manifest_is_read_again(tmp_path):
    """The planner of a run prices the manifest as it is now, if it was changed since the run was planned."""
    manifest = pictures(tmp_path, 3)
    PlannerView(manifest, out=tmp_path / "out", features="colors").run().result()
    lines = manifest.read_text(encoding="utf-8").splitlines(keepends=True)
    manifest.write_text("".join(lines[:-1]), encoding="utf-8")
    planner = PlannerView.for_run(tmp_path / "out")
    assert planner.wait().rows == 2
    assert (planner.outcome, planner.price["rows"]["high"]) == ({}, 2)
