"""500 kills (kill -9) of runs at system calls and at random instants, with and without faults of the service.

`LIGHTMETER_KILLS` sets another number. The checks are those of `tests/e2e/kills`: no answer lost, no asset charged
twice, at most `--max-at-risk` credits lost in a kill, no POST after the end. The printed table has the number of kills
at each system call, and the credits lost in one of them on average and at most.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.kills.processes import Fault, ForkServer, ServiceProcess, strace_works
from tests.e2e.kills.scenario import (
    MAX_AT_RISK,
    POLLED,
    SYNCHRONOUS,
    SYSTEM_CALLS,
    ScenarioFactory,
    count_calls,
    kill_at_call,
    kill_repeatedly,
)

KILLS = int(os.environ.get("LIGHTMETER_KILLS", "500"))
WORKERS = 2
BATCH_OPTIONS = {"at once": SYNCHRONOUS, "polled": POLLED}
SHARE = {"fdatasync": 0.22, "pwrite64": 0.22, "sendto": 0.18, "recvfrom": 0.18, "connect": 0.02, "rename": 0.08}
"""Share of the kills at each system call; the rest are at random instants."""

LOSING = {"charge_drop": 0.08, "drop_charge": 0.08, "drop_before": 0.08, "truncated": 0.05, "500_before": 0.05}


@dataclass
class Tally:
    """The results of the kills at one system call."""

    kills: int = 0
    lost: list[int] = field(default_factory=list)

    def line(self, name: str) -> str:
        """Return the row of the table."""
        if not self.lost:
            return f"{name:24}{self.kills:>8}"
        return f"{name:24}{self.kills:>8}{sum(self.lost) / len(self.lost):>12.2f}{max(self.lost):>12}"


def kill_at_steps(factory: ScenarioFactory, call: str, batch_option: tuple[str, ...], kills: int) -> Tally:
    """Kill runs at calls that are evenly spaced from the first to the last."""
    tally, calls, at = Tally(), count_calls(factory, call, *batch_option), 0.0
    while tally.kills < kills:
        lost = kill_at_call(factory, Fault(call, 1 + int(at) % calls), *batch_option)
        if lost is not None:
            tally.kills += 1
            tally.lost.append(lost)
        at += max(1.0, calls / kills)
        calls = calls if lost is not None else max(1, calls - 1)
    return tally


def kill_at_random(factory: ScenarioFactory, name: str, batch_option: tuple[str, ...], kills: int, **rules) -> Tally:
    """Kill runs at random instants until there were `kills` kills."""
    tally, random_numbers = Tally(), random.Random(name)  # noqa: S311 (instants, not secrets)
    while tally.kills < kills:
        tally.kills += kill_repeatedly(factory, random_numbers, 1.0, *batch_option, **rules)
    return tally


def run_worker(number: int, name: str, batch_option: tuple[str, ...], folder: Path) -> dict[str, Tally]:
    """Make all kills for one batch size, with a scenario factory of its own."""
    folder.mkdir()
    service, fork_server = ServiceProcess(), ForkServer(folder, dict(os.environ))
    factory, each = ScenarioFactory(service, fork_server, folder), KILLS / len(BATCH_OPTIONS)
    done: dict[str, Tally] = {}

    def record(kind: str, tally: Tally) -> None:
        done[kind] = tally
        print(tally.line(f"{name}: {kind}"), flush=True)  # noqa: T201 (the table is what it is for)

    try:
        for call in SYSTEM_CALLS:
            record(call, kill_at_steps(factory, call, batch_option, max(1, round(SHARE[call] * each))))
        left = max(2, round(each - sum(tally.kills for tally in done.values())))
        record("random", kill_at_random(factory, name, batch_option, left // 2))
        record(
            "random, losing", kill_at_random(factory, name, batch_option, left - left // 2, faults=LOSING, seed=number)
        )
    finally:
        fork_server.close()
        service.close()
    return done


def test_five_hundred_kills(tmp_path):
    """Nothing paid is lost and nothing is paid twice, with both batch sizes."""
    if not strace_works(tmp_path):
        pytest.skip("needs strace, and permission to trace")
    print(f"\n{'killed at':24}{'kills':>8}{'lost, mean':>12}{'lost, most':>12}   (of {MAX_AT_RISK} at risk)")  # noqa: T201 (likewise)
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = [
            pool.submit(run_worker, number, name, batch_option, tmp_path / f"worker{number}")
            for number, (name, batch_option) in enumerate(BATCH_OPTIONS.items())
        ]
    total = sum(tally.kills for part in parts for tally in part.result().values())
    print(f"{total} kills, 0 answers lost, 0 assets charged twice")  # noqa: T201 (likewise)
    assert total >= KILLS
