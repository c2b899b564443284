"""kill -9 of runs at every kind of step and at random instants, with losing services and without: 500 kills and more.

`LIGHTMETER_KILLS` sets another number. Nothing here is timed; what is held is what `tests/e2e/kills` holds: 0 answers
lost, 0 assets charged twice, at most `--max-at-risk` credits lost at a kill, no POST after the end. The table says how
many kills there were at each kind of step, how many credits were lost at one of them on average and at most.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.kills.harness import Counterpart, Fault, Nursery, strace_works
from tests.e2e.kills.story import AT_ONCE, AT_RISK, POLLED, STEPS, World, calls_of, killed_again_and_again, killed_at

KILLS = int(os.environ.get("LIGHTMETER_KILLS", "500"))
WORKERS = 2
WAYS = {"at once": AT_ONCE, "polled": POLLED}
SHARE = {"fdatasync": 0.22, "pwrite64": 0.22, "sendto": 0.18, "recvfrom": 0.18, "connect": 0.02, "rename": 0.08}
"""Of the kills on each way, how many at each kind of step; the rest at random instants."""

LOSING = {"charge_drop": 0.08, "drop_charge": 0.08, "drop_before": 0.08, "truncated": 0.05, "500_before": 0.05}


@dataclass
class Tally:
    """What came of the kills at one kind of step."""

    kills: int = 0
    lost: list[int] = field(default_factory=list)

    def line(self, name: str) -> str:
        """For the table."""
        if not self.lost:
            return f"{name:24}{self.kills:>8}"
        return f"{name:24}{self.kills:>8}{sum(self.lost) / len(self.lost):>12.2f}{max(self.lost):>12}"


def at_steps(world: World, call: str, way: tuple[str, ...], kills: int) -> Tally:
    """Kill at so many places from the first call to the last; places beyond the end of a run are tried at its start."""
    tally, calls, at = Tally(), calls_of(world, call, *way), 0.0
    while tally.kills < kills:
        lost = killed_at(world, Fault(call, 1 + int(at) % calls), *way)
        if lost is not None:
            tally.kills += 1
            tally.lost.append(lost)
        at += max(1.0, calls / kills)
        calls = calls if lost is not None else max(1, calls - 1)
    return tally


def at_random(world: World, name: str, way: tuple[str, ...], kills: int, **rules) -> Tally:
    """Kill again and again until there were so many."""
    tally, chance = Tally(), random.Random(name)  # noqa: S311 (instants, not secrets)
    while tally.kills < kills:
        tally.kills += killed_again_and_again(world, chance, 1.0, *way, **rules)
    return tally


def work(number: int, name: str, way: tuple[str, ...], folder: Path) -> dict[str, Tally]:
    """One worker's part: one way, in a world of its own."""
    folder.mkdir()
    counterpart, nursery = Counterpart(), Nursery(folder, dict(os.environ))
    world, each = World(counterpart, nursery, folder), KILLS / len(WAYS)
    done: dict[str, Tally] = {}

    def note(kind: str, tally: Tally) -> None:
        done[kind] = tally
        print(tally.line(f"{name}: {kind}"), flush=True)  # noqa: T201 (the table is what it is for)

    try:
        for call in STEPS:
            note(call, at_steps(world, call, way, max(1, round(SHARE[call] * each))))
        left = max(2, round(each - sum(tally.kills for tally in done.values())))
        note("random", at_random(world, name, way, left // 2))
        note("random, losing", at_random(world, name, way, left - left // 2, faults=LOSING, seed=number))
    finally:
        nursery.close()
        counterpart.close()
    return done


def test_five_hundred_kills(tmp_path):
    """Nothing paid is lost, nothing is paid twice, on both ways."""
    if not strace_works(tmp_path):
        pytest.skip("needs strace, and leave to trace")
    print(f"\n{'killed at':24}{'kills':>8}{'lost, mean':>12}{'lost, most':>12}   (of {AT_RISK} at risk)")  # noqa: T201 (likewise)
    with ThreadPoolExecutor(WORKERS) as pool:
        parts = [
            pool.submit(work, number, name, way, tmp_path / f"world{number}")
            for number, (name, way) in enumerate(WAYS.items())
        ]
    total = sum(tally.kills for part in parts for tally in part.result().values())
    print(f"{total} kills, 0 answers lost, 0 assets charged twice")  # noqa: T201 (likewise)
    assert total >= KILLS
