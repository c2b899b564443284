"""Ctrl-C and SIGTERM in every phase; two runs at once; a clock that goes back."""

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
from lightmeter.engine.session import open_session, prepare_run_journal
from lightmeter.settings import Settings
from tests.e2e.kills import judge
from tests.e2e.kills.harness import Fault, Nursery
from tests.e2e.kills.story import AT_ONCE, POLLED, calls_of, seconds_of

pytestmark = pytest.mark.slow

WAYS = pytest.mark.parametrize("way", [AT_ONCE, POLLED], ids=["at once", "polled"])
SIGNALS = pytest.mark.parametrize("name", ["INT", "TERM"])
BEFORE_IT_LISTENS = {-signal.SIGINT, -signal.SIGTERM}


def drained(story, stopped) -> None:
    """A stop was polite: nothing is in doubt; going on does the rest, each row once."""
    assert stopped.code in {0, 130, *BEFORE_IT_LISTENS}, stopped.err
    assert "Traceback" not in stopped.err
    before = judge.remember(story.out)
    if before is not None:
        assert {state for state, *_ in before.submissions.values()} <= {"settled", "acked"}
    ended = story.go_on()
    memory, lost = story.judged(ended, before)
    assert (ended.code, lost, memory.held) == (0, 0, 0), ended.err
    assert set(judge.charges(story.ledger()).values()) == {1}


@WAYS
@pytest.mark.parametrize("call", ["fdatasync", "sendto", "recvfrom"])
def test_sigterm_at_a_step_leaves_nothing_in_doubt(traced, call, way):
    """Whatever it was doing, it drains what is in flight, and `resume` does the rest once."""
    calls = calls_of(traced, call, *way)
    for when in (1 + calls // 3, 1 + 2 * calls // 3):
        story = traced.story(*way)
        drained(story, story.run(fault=Fault(call, when, "signal=TERM")))


@WAYS
@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_at_a_random_instant_leaves_nothing_in_doubt(world, way, name):
    """Ctrl-C at any time is as good as any other."""
    longest_s = seconds_of(world, *way)
    for part in (0.5, 0.8):
        story = world.story(*way)
        running = story.start()
        time.sleep(part * longest_s)
        running.signal(name)
        drained(story, running.wait())


@SIGNALS
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_stop_while_planning_spends_nothing(traced, part, name):
    """Who says stop before anything was sent has spent nothing, also with --yes."""
    story = traced.story()
    pages = plan_pages(traced)
    stopped = story.run(fault=Fault("pwrite64", max(1, int(pages * part)), f"signal={name}"))
    assert stopped.code in {130, *BEFORE_IT_LISTENS}, (stopped.code, stopped.err)
    assert story.ledger()["posts"] == []


def plan_pages(world) -> int:
    """Pages written by a plan alone, in the thread that writes most."""
    assert world.story().run("plan", fault=Fault("pwrite64", 65_535)).code == 0
    return world.nursery.most_calls()


def test_a_second_ctrl_c_leaves_at_once(world):
    """Who presses it twice does not wait: 130 within the time of the answer, and what was in flight is in doubt."""
    story = world.story("--max-at-risk", 3, latency_s=2.0)
    running = story.start()
    while not story.ledger()["posts"]:
        time.sleep(0.01)
    running.signal(signal.SIGINT)
    time.sleep(0.2)
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended.err
    before = judge.remember(story.out)
    world.counterpart.rules(story.key, latency_s=0.01)
    time.sleep(2.0)  # the counterpart goes on all the same
    _, lost = story.judged(story.go_on(), before)
    assert lost <= 3


@pytest.fixture
def second(world, environment, tmp_path):
    """Another nursery: for runs beside those of the world."""
    nursery = Nursery(tmp_path, environment)
    yield nursery
    nursery.close()


def test_of_two_runs_at_once_one_is_refused(traced, second):
    """Two `run` into one empty folder: one does the work, the other says so; a plan never replaces a run's journal."""
    story = traced.story(latency_s=0.05)
    slow = story.start(fault=Fault("rename,link", 1, "delay_enter=1500000"), nursery=second)
    time.sleep(0.3)
    quick = story.run()
    ended = [quick, slow.wait()]
    assert sorted(one.code for one in ended) in ([0, 2], [0, 0]), [one.err for one in ended]
    assert all("Another process" in one.err for one in ended if one.code)
    story.judged(story.run("resume"))
    assert set(judge.charges(story.ledger()).values()) == {1}


def test_a_folder_in_use_is_refused(world, second):
    """While a run goes on, `run` and `resume` of another process are refused before they send anything."""
    story = world.story("--max-concurrency", 1, *AT_ONCE, rows=500, latency_s=0.1)
    running = story.start()
    while len(story.ledger()["posts"]) < 2:
        time.sleep(0.01)
    for verb in ("run", "resume"):
        refused = story.run(verb, nursery=second)
        assert refused.code == 2, refused.err
        assert "Another process" in refused.err
    running.signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.code == 130, ended.err
    memory = judge.remember(story.out)
    assert len(story.ledger()["posts"]) == len(memory.submissions)
    assert set(judge.charges(story.ledger()).values()) == {1}


@dataclass
class GoingBack(SystemClock):
    """A clock that is set back by a day in the middle of the run."""

    readings: int = 0

    def now(self) -> float:
        self.readings += 1
        return super().now() - 86_400 * (self.readings > 20)


@WAYS
def test_a_clock_set_back_changes_nothing(world, way, monkeypatch):
    """The time of day only decorates the journal: batches are collected, and nothing is lost or sent twice."""
    story = world.story()
    settings = Settings(api_key=SecretStr(story.key), base_url=world.counterpart.base_url)
    monkeypatch.setenv("LIGHTMETER_API_KEY", story.key)

    async def run() -> None:
        urls = story.manifest.read_text().split()
        plan = await lm.plan(
            urls,
            features="tags",
            backends="clarifai",
            precheck=False,
            batch_size=int(way[1]),
            base_url=world.counterpart.base_url,
        )
        prepare_run_journal(plan, story.out)
        async with open_session(story.out, settings, clock=GoingBack()) as session, open_engine(session) as engine:
            await engine.recover()
            await engine.spend()
            await engine.finish()

    asyncio.run(run())
    ended = story.run("resume")
    story.judged(ended)
    assert ended.code == 0
    assert set(judge.charges(story.ledger()).values()) == {1}
