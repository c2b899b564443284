"""The states of the flow `analyze` after an error: their names, what they tell about spending, and the tables."""

from __future__ import annotations

import pytest

import lightmeter as lm
from lightmeter.errors import (
    JournalConflict,
    JournalLocked,
    LightmeterError,
    ManifestError,
    SendingProcessDied,
    TablesError,
    Unreachable,
    UsageError,
)
from lightmeter.prefect_integration import error_states, run_events
from lightmeter.prefect_integration.run_events import RunTotals, Spent, read_totals
from tests.engine.hostile import Hostile, listening

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}


@pytest.fixture
async def out(tmp_path, charges_at_once):
    """Return the folder of a run that paid 2 credits for 2 requests."""
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        urls = [f"http://pictures.example/{number}.jpg" for number in range(2)]
        await lm.aio.run(await lm.aio.plan(urls, base_url=base_url, **OPTIONS), tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def stopped(monkeypatch, out):
    """Return a function that ends the flow by an error.

    It returns the name of the state, and what the event says that the flow run has paid; None if the run is to be
    finished, which writes its tables and sends an event of its own.
    """
    events = []
    monkeypatch.setattr(run_events, "emit_event", lambda name, _, **values: events.append((name, values)))

    async def stop(error: LightmeterError, before: RunTotals | None, *, stream: bool) -> tuple[str, int] | None:
        events.clear()
        state = error_states.end_by_error(error, out, before, stream=stream)
        if state is None:
            assert not events
            return None
        assert await state.aresult(raise_on_failure=False) is error
        ((name, values),) = events
        assert (name, values["state"], values["message"]) == ("lightmeter.run.failed", state.name, state.message)
        return state.name, values["paid_now"]

    return stop


@pytest.mark.parametrize("error", [SendingProcessDied("Killed."), Unreachable("Nobody answers."), UsageError("No.")])
async def test_a_run_that_was_being_sent_gets_its_tables(stopped, out, error):
    """Whatever ends the sending of planned rows, the run is finished as one that stopped early."""
    assert await stopped(error, read_totals(out), stream=False) is None
    assert await stopped(error, RunTotals(), stream=True) is None


@pytest.mark.parametrize("error", [ManifestError("No URL."), UsageError("No budget."), Unreachable("Nobody answers.")])
async def test_a_flow_run_that_planned_and_sent_nothing_is_not_planned(stopped, out, monkeypatch, error):
    """With `stream`, an error before the first row is planned is one of planning, also if the folder holds a run."""
    assert await stopped(error, read_totals(out), stream=True) == ("NotPlanned", 0)
    assert await stopped(error, None, stream=False) == ("NotPlanned", 0)
    before = read_totals(out)
    monkeypatch.setattr(error_states, "read_totals", lambda _: RunTotals(("new",)))
    assert await stopped(error, before, stream=True) == ("NotPlanned", 0)


async def test_a_folder_in_use_does_not_count_what_the_other_run_spends(stopped, out):
    """What the other process plans and pays meanwhile is not of this flow run."""
    error, before = JournalLocked("In use."), RunTotals(read_totals(out).run_ids, 2, Spent(1, 1))
    assert await stopped(error, before, stream=True) == ("NotPlanned", 0)
    assert await stopped(error, RunTotals(), stream=True) == ("NotPlanned", 0)
    assert await stopped(error, before, stream=False) == ("Stopped", 0)


@pytest.mark.parametrize("error", [JournalConflict("A copy."), TablesError("The disk is full.")])
async def test_a_journal_or_tables_that_cannot_be_used_stop_the_run(stopped, out, error):
    """The tables are not written from a journal that is not to be trusted, nor a second time after a full disk."""
    before = RunTotals(read_totals(out).run_ids, 2, Spent(1, 1))
    assert await stopped(error, before, stream=False) == ("Stopped", 1)
