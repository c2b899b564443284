"""Scenarios: one account, one manifest, one output folder, and a run that is started, killed and resumed there."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.kills import run_checks
from tests.e2e.kills.processes import KILLED, CommandResult, Fault, ForkServer, RunningCommand, ServiceProcess

ROWS = 12
MAX_AT_RISK = 3
SYNCHRONOUS = ("--batch-size", "1")
POLLED = ("--batch-size", "3")
"""Batch sizes for both kinds of answers: a single image is answered at once, several are polled for."""

OPTIONS = ("--yes", "--no-precheck", "--features", "tags", "--backends", "clarifai", "--max-concurrency", "4")
SYSTEM_CALLS = ("fdatasync", "pwrite64", "sendto", "recvfrom", "connect", "rename")
"""System calls at which a run is killed: commits and page writes of the journal, messages to and from the service,
connections, and renames of finished tables."""

NEVER_REACHED = 65_535
"""Highest call number that strace can count to: a fault there never happens."""

MAX_STARTS = 6


@dataclass
class ScenarioFactory:
    """Creates scenarios that share one service and one fork server."""

    service: ServiceProcess
    fork_server: ForkServer
    folder: Path
    scenarios: int = 0

    def create(self, *options: object, rows: int = ROWS, key: str | None = None, **rules: Any) -> Scenario:
        """Return a scenario with the account of `key`, or with a new account that has these service rules."""
        self.scenarios += 1
        folder = self.folder / f"scenario{self.scenarios}"
        folder.mkdir()
        (folder / "tmp").mkdir()
        manifest = folder / "manifest.txt"
        manifest.write_text("".join(f"http://pictures.test/{self.scenarios}/{row}.jpg\n" for row in range(rows)))
        return Scenario(self, folder, manifest, key or self.service.account(**rules), tuple(map(str, options)))


@dataclass
class Scenario:
    """One run, from its first start to its last, with its account."""

    factory: ScenarioFactory
    folder: Path
    manifest: Path
    key: str
    options: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The output folder."""
        return self.folder / "out"

    def start(
        self, verb: str = "run", *more: object, fork_server: ForkServer | None = None, **how: Any
    ) -> RunningCommand:
        """Start a command on this run in a new process, which `fork_server` forks instead of the factory's."""
        args = {
            "run": ("run", self.manifest, "--out", self.out, "--json", *OPTIONS, *self.options),
            "statement": ("statement", self.out),
            "rebuild": ("rebuild", self.out),
            "plan": ("plan", self.manifest, "--json", *OPTIONS[1:], *self.options),
        }.get(verb, (verb, self.out, "--json"))
        at = ("--base-url", self.factory.service.base_url) if verb in {"run", "resume", "plan"} else ()
        env = {
            "LIGHTMETER_API_KEY": self.key,
            "LIGHTMETER_CHARGES_FINAL_S": "0.3",  # the service charges everything within half of that
            "LIGHTMETER_STATE_DIR": str(self.factory.folder / "state"),
            "TMPDIR": str(self.folder / "tmp"),
            **self.env,
        }
        return (fork_server or self.factory.fork_server).start(*args, *at, *more, env=env, **how)

    def run(self, verb: str = "run", *more: object, **how: Any) -> CommandResult:
        """Start a command as `start` does, and wait for its end."""
        return self.start(verb, *more, **how).wait()

    def ledger(self) -> dict[str, Any]:
        """Return the service's own record of this account."""
        return self.factory.service.ledger(self.key)

    def continue_run(self) -> CommandResult:
        """Run `resume`, or `run` again if there is no journal yet."""
        return self.run("resume" if (self.out / "journal.sqlite").exists() else "run")

    def check(
        self, result: CommandResult, before: run_checks.JournalSnapshot | None = None
    ) -> tuple[run_checks.JournalSnapshot, int]:
        """Check the run against the service's ledger; return its journal and the credits lost."""
        assert result.code in {0, 1, 3}, (result.code, result.err)
        return run_checks.check_run(self.out, result.json, before, self.ledger())


def count_calls(factory: ScenarioFactory, call: str, *options: str) -> int:
    """Return how often the busiest thread of an undisturbed run makes a system call."""
    result = factory.create(*options).run(fault=Fault(call, NEVER_REACHED))
    assert result.code == 0, result.err
    return factory.fork_server.count_busiest_thread_calls()


def measure_seconds(factory: ScenarioFactory, *options: str) -> float:
    """Return the seconds that an undisturbed run takes."""
    began = time.monotonic()
    assert factory.create(*options).run().code == 0
    return time.monotonic() - began


def kill_at_call(factory: ScenarioFactory, fault: Fault, *options: str) -> int | None:
    """Kill a run at one system call, continue it, and check it; return the credits lost, None if it was not killed."""
    scenario = factory.create("--max-at-risk", MAX_AT_RISK, *options)
    killed = scenario.run(fault=fault)
    if killed.code != KILLED:
        scenario.check(killed)
        return None
    before = run_checks.read_snapshot(scenario.out)
    result = scenario.continue_run()
    _, lost = scenario.check(result, before)
    assert lost <= MAX_AT_RISK
    check_nothing_more_is_sent(scenario, result)
    return lost


def kill_repeatedly(
    factory: ScenarioFactory, random_numbers: random.Random, longest_s: float, *options: str, **rules: Any
) -> int:
    """Kill each start at a random instant until one ends first; check after each kill; return the number of kills."""
    scenario = factory.create("--max-at-risk", MAX_AT_RISK, *options, **rules)
    before, kills = None, 0
    while kills < MAX_STARTS:
        running = scenario.start("resume" if before is not None else "run")
        time.sleep(random_numbers.uniform(0.2, 1) * longest_s)
        running.signal(signal.SIGKILL)
        result = running.wait()
        if result.code != KILLED:
            break
        kills += 1
        now = run_checks.read_snapshot(scenario.out)
        if now is not None:
            before_ok = {} if before is None else before.ok()
            assert before_ok.items() <= now.ok().items()
            run_checks.check_nothing_charged_twice(now, scenario.ledger())
        before = now
    else:
        result = scenario.continue_run()
    _, lost = scenario.check(result, before)
    assert lost <= MAX_AT_RISK * kills + run_checks.credits_of_lost_answers(scenario.ledger())
    if "faults" not in rules:
        check_nothing_more_is_sent(scenario, result)
    return kills


def check_nothing_more_is_sent(scenario: Scenario, result: CommandResult) -> None:
    """Check that resuming a run that has ended sends no POST and prints the same counts."""
    posts = len(scenario.ledger()["posts"])
    again = scenario.run("resume")
    assert len(scenario.ledger()["posts"]) == posts
    assert (again.code, *(again.json[name] for name in run_checks.STATUSES)) == (
        result.code,
        *(result.json[name] for name in run_checks.STATUSES),
    )
