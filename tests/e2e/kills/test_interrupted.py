"""Ctrl-C and SIGTERM in every phase, two runs in one folder, and a clock that is set back."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

import lightmeter as lm
from lightmeter.clock import SystemClock
from lightmeter.engine.engine import open_engine
from lightmeter.run_session.session import open_session, prepare_run_journal
from lightmeter.settings import Settings
from tests.e2e.kills import run_checks
from tests.e2e.kills.processes import Fault
from tests.e2e.kills.scenario import POLLED, SYNCHRONOUS, count_calls, measure_seconds
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

BATCH_OPTIONS = pytest.mark.parametrize("batch_option", [SYNCHRONOUS, POLLED], ids=["at once", "polled"])
SIGNALS = pytest.mark.parametrize("name", ["INT", "TERM"])
KILLED_BEFORE_HANDLERS = {-signal.SIGINT, -signal.SIGTERM}


def check_clean_stop(scenario, stopped) -> None:
    """Check that a stop left no request without an answer, and that continuing pays each other row once."""
    assert stopped.code in {0, 130, *KILLED_BEFORE_HANDLERS}, stopped.err
    assert "Traceback" not in stopped.err
    before = run_checks.read_snapshot(scenario.out)
    if before is not None:
        assert {state for state, *_ in before.submissions.values()} <= {"settled", "acked"}
    result = scenario.continue_run()
    snapshot, lost = scenario.check(result, before)
    assert (result.code, lost, snapshot.held) == (0, 0, 0), result.err
    assert set(run_checks.charge_counts(scenario.ledger()).values()) == {1}


@pytest.mark.sweep
@BATCH_OPTIONS
@pytest.mark.parametrize("call", ["fdatasync", "sendto", "recvfrom"])
def test_sigterm_at_a_step_leaves_nothing_in_doubt(traced_factory, call, batch_option):
    """After SIGTERM at any system call the run waits for requests in flight; `resume` does the rest."""
    calls = count_calls(traced_factory, call, *batch_option)
    for when in (1 + calls // 3, 1 + 2 * calls // 3):
        scenario = traced_factory.create(*batch_option)
        check_clean_stop(scenario, scenario.run(fault=Fault(call, when, "signal=TERM")))


@pytest.mark.sweep
@BATCH_OPTIONS
@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_at_a_random_instant_leaves_nothing_in_doubt(factory, batch_option, name):
    """After a stop at a random instant no request lacks its answer."""
    longest_s = measure_seconds(factory, *batch_option)
    for part in (0.5, 0.8):
        scenario = factory.create(*batch_option)
        running = scenario.start()
        time.sleep(part * longest_s)
        running.signal(name)
        check_clean_stop(scenario, running.wait())


@pytest.mark.sweep
@SIGNALS
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_stop_while_planning_spends_nothing(traced_factory, part, name):
    """A stop during planning spends nothing, also with --yes."""
    scenario = traced_factory.create()
    pages = count_plan_pages(traced_factory)
    stopped = scenario.run(fault=Fault("pwrite64", max(1, int(pages * part)), f"signal={name}"))
    assert stopped.code in {130, *KILLED_BEFORE_HANDLERS}, (stopped.code, stopped.err)
    assert scenario.ledger()["posts"] == []


def count_plan_pages(factory) -> int:
    """Return the number of pages that planning writes, in the thread that writes most."""
    assert factory.create().run("plan", fault=Fault("pwrite64", 65_535)).code == 0
    return factory.fork_server.count_busiest_thread_calls()


def test_a_second_ctrl_c_leaves_at_once(factory):
    """A second Ctrl-C ends the run at once with 130; requests in flight get no answer."""
    scenario = factory.create("--max-at-risk", 3, latency_s=2.0)
    running = scenario.start()
    while not scenario.ledger()["posts"]:
        time.sleep(0.01)
    running.signal(signal.SIGINT)
    time.sleep(0.2)
    running.signal(signal.SIGINT)
    result = running.wait()
    assert result.code == 130, result.err
    before = run_checks.read_snapshot(scenario.out)
    factory.service.rules(scenario.key, latency_s=0.01)
    time.sleep(2.0)  # the service finishes the requests all the same
    _, lost = scenario.check(scenario.continue_run(), before)
    assert lost <= 3


def test_of_two_runs_at_once_one_is_refused(traced_factory, second_fork_server):
    """Of two `run` commands in one empty folder one is refused, and no plan replaces a run's journal."""
    scenario = traced_factory.create(latency_s=0.05)
    slow = scenario.start(fault=Fault("rename,link", 1, "delay_enter=1500000"), fork_server=second_fork_server)
    time.sleep(0.3)
    quick = scenario.run()
    result = [quick, slow.wait()]
    assert sorted(one.code for one in result) in ([0, 2], [0, 0]), [one.err for one in result]
    assert all("Another process" in one.err for one in result if one.code)
    scenario.check(scenario.run("resume"))
    assert set(run_checks.charge_counts(scenario.ledger()).values()) == {1}


def test_a_folder_in_use_is_refused(factory, second_fork_server):
    """During a run, `run` and `resume` in another process are refused before they send anything."""
    scenario = factory.create("--max-concurrency", 1, *SYNCHRONOUS, rows=500, latency_s=0.1)
    running = scenario.start()
    while len(scenario.ledger()["posts"]) < 2:
        time.sleep(0.01)
    for verb in ("run", "resume"):
        refused = scenario.run(verb, fork_server=second_fork_server)
        assert refused.code == 2, refused.err
        assert "Another process" in refused.err
    running.signal(signal.SIGTERM)
    result = running.wait()
    assert result.code == 130, result.err
    snapshot = run_checks.read_snapshot(scenario.out)
    assert len(scenario.ledger()["posts"]) == len(snapshot.submissions)
    assert set(run_checks.charge_counts(scenario.ledger()).values()) == {1}


@dataclass
class SteppingClock(SystemClock):
    """A clock that is set back by a day in the middle of the run."""

    readings: int = 0

    def now(self) -> float:
        self.readings += 1
        return super().now() - 86_400 * (self.readings > 20)


@pytest.mark.parametrize(
    "batch_option",
    [sweep(SYNCHRONOUS, name="at once"), pytest.param(POLLED, id="polled")],
)
def test_a_clock_set_back_changes_nothing(factory, batch_option, monkeypatch):
    """If the clock is set back by a day, batches are collected, and nothing is lost or sent twice."""
    scenario = factory.create()
    settings = Settings(api_key=SecretStr(scenario.key), base_url=factory.service.base_url)
    monkeypatch.setenv("LIGHTMETER_API_KEY", scenario.key)

    async def run() -> None:
        urls = scenario.manifest.read_text().split()
        plan = await lm.aio.plan(
            urls,
            features="tags",
            backends="clarifai",
            precheck=False,
            batch_size=int(batch_option[1]),
            base_url=factory.service.base_url,
        )
        prepare_run_journal(plan, scenario.out)
        async with (
            open_session(scenario.out, settings, clock=SteppingClock()) as session,
            open_engine(session) as engine,
        ):
            await engine.recover()
            await engine.spend()
            await engine.finish()

    asyncio.run(run())
    result = scenario.run("resume")
    scenario.check(result)
    assert result.code == 0
    assert set(run_checks.charge_counts(scenario.ledger()).values()) == {1}
