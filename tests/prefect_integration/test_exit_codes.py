"""`python flows/analyze.py` ends with the exit code of `lightmeter run`."""

from __future__ import annotations

import pytest
from prefect.states import Completed

import lightmeter as lm
from lightmeter.api.run_result import Run
from lightmeter.errors import AccessDenied, Interrupted, OutcomeUnknown, Unreachable, UsageError
from lightmeter.prefect_integration.flow_results import NOT_PLANNED, failed_state
from tests.engine.hostile import Hostile, listening
from tests.prefect_integration.flow_modules import load_flow

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}


@pytest.mark.usefixtures("charges_at_once")
@pytest.mark.parametrize(
    ("answer", "budget", "stopped_by", "code"),
    [
        ("answer", 9, None, 0),
        ("answer", 1, None, 3),
        ("charge and drop", 9, None, 1),
        ("refuse", 9, None, 1),
        ("answer", 9, AccessDenied("The key was revoked."), 4),
        ("answer", 9, Unreachable("Nobody answers."), 2),
        ("answer", 9, OutcomeUnknown("A request is lost."), 1),
        ("answer", 1, Interrupted("Stopped by the user."), 130),
    ],
)
async def test_the_script_ends_as_the_command(tmp_path, monkeypatch, *, answer, budget, stopped_by, code):
    """The error that stopped the run decides; without one, the rows that are left."""
    service = Hostile(lambda number, _: answer if number == 2 else "answer")
    flow, out = load_flow("analyze"), tmp_path / "out"
    async with listening(service) as base_url:
        urls = [f"http://pictures.example/{number}.jpg" for number in range(2)]
        await lm.aio.run(await lm.aio.plan(urls, base_url=base_url, budget=budget, max_concurrency=1, **OPTIONS), out)
    run = Run(out, stopped_by)
    failed = flow._failed_state(run, run.summary())

    async def analyze(manifest, out, *, return_state):
        return failed or Completed()

    monkeypatch.setattr(flow, "analyze", analyze)
    assert await flow._main("manifest.csv", str(out)) == run.exit_code == code
    assert failed is None or "To do: " in failed.message


async def test_an_error_before_the_run_ends_the_script_as_the_command(tmp_path, monkeypatch, capsys):
    """An error that ended the flow before anything was sent decides; its message and hint are printed."""
    flow = load_flow("analyze")

    async def analyze(manifest, out, *, return_state):
        return failed_state(UsageError("Two manifests.", hint="Give one."), NOT_PLANNED)

    monkeypatch.setattr(flow, "analyze", analyze)
    assert await flow._main("manifest.csv", str(tmp_path)) == 2
    assert capsys.readouterr().err == "error: Two manifests. Give one.\n"
