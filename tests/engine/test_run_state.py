"""The state of a run changes only by its own methods."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import lightmeter
from lightmeter.engine.batching import NameReliability, NameReliabilityTracker
from lightmeter.engine.run_state import RunState
from lightmeter.engine.url_uploads import UploadSelection

PACKAGE = Path(lightmeter.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "run_state.py")
RUN_STATE = {"run_state", "_run_state"}


def assigned_fields(tree: ast.AST) -> list[ast.Attribute]:
    """Return every attribute that a module assigns to or deletes."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)]


def test_only_the_run_state_changes_its_fields():
    """No other module assigns to a field of the run state."""
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aliases = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and getattr(node.value, "attr", getattr(node.value, "id", "")) in RUN_STATE
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for field in assigned_fields(tree):
            owner = getattr(field.value, "attr", getattr(field.value, "id", ""))
            assert owner not in RUN_STATE | aliases, f"{path}:{field.lineno}: {field.attr}"


def half_done(budget: int | None) -> RunState:
    """Return the state of a run that has finished 50 of 100 rows, 2 credits each, with 5 requests in flight."""
    tracker = NameReliabilityTracker(NameReliability.BATCHES_IDENTIFY)
    state = RunState(Counter(pending=100), 30, 0, 0.0, budget, tracker, UploadSelection("never"))
    for _ in range(55):
        state.start_request()
        state.hold(2)
    for _ in range(50):
        state.end_request()
        state.release_hold(2, 2)
    state.move_rows("pending", "ok", 50)
    return state


@pytest.mark.parametrize(("budget", "eta_s", "ends_early"), [(None, 10, False), (1000, 10, False), (180, 4, True)])
async def test_the_eta_respects_the_budget(budget, eta_s, ends_early):
    """The time left ends when the budget is spent, and the progress says so; what was paid before does not count."""
    progress = half_done(budget).progress(10.0)
    assert (progress.eta_s, progress.eta_is_budget) == (eta_s, ends_early)


async def test_a_stopping_run_tells_for_what_it_waits():
    """After an interruption the progress names the requests in flight and the time for them, not that of the rows."""
    state = half_done(None)
    state.enter_phase("running")
    state.interrupt()
    progress = state.progress(10.0)
    assert (progress.phase, progress.in_flight, progress.eta_s) == ("stopping", 5, 1.0)
