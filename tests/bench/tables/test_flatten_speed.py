"""Flatten + Parquet beside its peers and its floors. A measurement, not a test of the suite.

    pytest tests/bench/tables --override-ini addopts= --import-mode=importlib -s

`LIGHTMETER_BENCH_ANSWERS` (100000; 1000000 takes about ten times as long, and 5 GB of disk) sets the size,
`LIGHTMETER_BENCH_ONLY` (all) names contenders, comma-separated. Machines that share their processors change their speed
from minute to minute: ours, the nearest peer and the floors take turns, `LIGHTMETER_BENCH_ROUNDS` (3) times; what is
said of each is its middle round. On a busy machine look at the last column.
"""

# ruff: noqa: T201 (the table is what it is for)

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import duckdb
import pytest

from lightmeter.facts.columns import FACT_TABLES, OPTIONAL_TABLES

HERE = Path(__file__).parent
ANSWERS = int(os.environ.get("LIGHTMETER_BENCH_ANSWERS", "100000"))
OURS = "lightmeter"
TWO_PROCESSES = "lightmeter (2 processes)"
DUCKDB = "DuckDB read_json"
ROUNDS = int(os.environ.get("LIGHTMETER_BENCH_ROUNDS", "3"))
FLOORS = ("floor: JSON parse", "floor: Arrow arrays", "floor: Parquet write")
"""Steps that every way to Parquet by Python objects has, each alone: nothing is done with what they make."""

PEERS = ("pandas.json_normalize", "pydantic loop", DUCKDB, "Polars")
ALL = (OURS, TWO_PROCESSES, *PEERS, *FLOORS)
IN_TURN = (OURS, TWO_PROCESSES, DUCKDB, *FLOORS)
MODULES = {"Polars": "polars"}
SAMPLED_S = 0.1
MAX_FLOORS = 1.8
"""The goal: how many times all floors together ours may take in one process."""
MAX_MB = 300
"""The goal: memory of each process, in MiB."""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The answers as lines of one file: every contender reads the same bytes."""
    path = tmp_path_factory.mktemp("answers") / "answers.ndjson"
    write_answers(path, ANSWERS)
    yield path
    path.unlink()


def write_answers(path: Path, count: int) -> None:
    """Made in a process of its own: this folder is no package."""
    program = (
        f"from answers import write_answers; from pathlib import Path; write_answers(Path({str(path)!r}), {count})"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=HERE)


def measured(name: str, source: Path, folder: Path) -> dict[str, float] | str:
    """What a process of its own says; a text says why there is nothing to measure."""
    if name in MODULES and find_spec(MODULES[name]) is None:
        return f"{MODULES[name]} is not installed"
    command = [sys.executable, str(HERE / "contenders.py"), name, str(source), str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=HERE) as process:
        peak_mb = 0.0
        while process.poll() is None:
            peak_mb = max(peak_mb, sum(map(memory_mb, family(process.pid))))
            time.sleep(SAMPLED_S)
        printed, error = process.stdout.read(), process.stderr.read()
    return json.loads(printed) | {"peak_mb": peak_mb} if process.returncode == 0 else error.strip().splitlines()[-1]


def family(pid: int) -> list[int]:
    """A process, and all that it has started; not what is still its double, in its memory, about to start a program."""
    child_lists = [read_process_file(path) for path in Path(f"/proc/{pid}/task").glob("*/children")]
    own = read_process_file(Path(f"/proc/{pid}/cmdline"))
    children = [
        int(child)
        for child in " ".join(child_lists).split()
        if read_process_file(Path(f"/proc/{child}/cmdline")) != own
    ]
    return [pid, *(one for child in children for one in family(child))]


def read_process_file(path: Path) -> str:
    """What a file says of a process; nothing where it has just ended."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def memory_mb(pid: int) -> float:
    """Memory of a process in MB of 2**20 bytes; what it shares with others counts by halves, thirds and so on (PSS)."""
    smaps = read_process_file(Path(f"/proc/{pid}/smaps_rollup"))
    return int(smaps.split("\nPss:")[1].split()[0]) / 1024 if "\nPss:" in smaps else 0.0


def show(found: dict[str, dict[str, float] | str], floors: list[dict[str, float]]) -> None:
    own = found.get(OURS)
    titles = ("seconds", "CPU s", "rows/s", "peak MB", "disk MB", "x ours", "x floors", "CPU x")
    print(f"\n\n{ANSWERS:,} answers\n{'':24}{''.join(f'{title:>11}' for title in titles)}")
    for name, figures_or_error in found.items():
        if isinstance(figures_or_error, str):
            print(f"{name:24}  skipped: {figures_or_error}")
            continue
        seconds = figures_or_error["seconds"]
        figures = [
            f"{seconds:.2f}",
            f"{figures_or_error['cpu_s']:.2f}",
            f"{figures_or_error['rows'] / seconds:,.0f}",
            f"{figures_or_error['peak_mb']:.0f}",
        ]
        figures.append(f"{figures_or_error['size_bytes'] / 2**20:.1f}")
        figures.append(f"{seconds / own['seconds']:.2f}" if isinstance(own, dict) else "-")
        beside = [
            figures_or_error[of] / sum(floor[of] for floor in floors) if floors else 0.0 for of in ("seconds", "cpu_s")
        ]
        figures += [f"{ratio:.2f}" if ratio else "-" for ratio in beside]
        print(f"{name:24}{''.join(f'{figure:>11}' for figure in figures)}")


def goal_lines(found: dict[str, dict[str, float] | str], floors: list[dict[str, float]]) -> list[str]:
    """Which goals this run met; on a busy machine, run again."""
    own = found.get(OURS)
    if not isinstance(own, dict):
        return []
    goals = []
    if floors:
        ratio = own["x_floors"]
        goals.append(f"{'met' if ratio <= MAX_FLOORS else 'missed'}: at most {MAX_FLOORS} x all floors ({ratio:.2f} x)")
    goals.append(f"{'met' if own['peak_mb'] <= MAX_MB else 'missed'}: at most {MAX_MB} MB ({own['peak_mb']:.0f} MB)")
    best = {"seconds": found.get(TWO_PROCESSES, own), "peak_mb": own}
    for title, of in (("time on two cores", "seconds"), ("memory", "peak_mb")):
        peers = [name for name in PEERS if isinstance(found.get(name), dict)]
        ahead = [name for name in peers if found[name][of] <= best[of][of]]
        met = f"missed: behind {', '.join(ahead)}" if ahead else "met: ahead of every peer"
        goals.append(f"{met} in {title}")
    return goals


def in_turn(names: list[str], source: Path, folder: Path) -> dict[str, list[dict[str, float] | str]]:
    """What each contender says, round by round; the slow ones have one round."""
    rounds: dict[str, list[dict[str, float] | str]] = {name: [] for name in names}
    for turn in range(ROUNDS):
        for name in names:
            if turn == 0 or name in IN_TURN:
                into = folder / f"{len(rounds[name])}-{names.index(name)}"
                into.mkdir()
                rounds[name].append(measured(name, source, into))
                shutil.rmtree(into)
    return rounds


def middle(rounds: list[dict[str, float] | str]) -> dict[str, float] | str:
    """The round of the middle time, with the memory of the worst; what went wrong, if anything did."""
    errors = [result for result in rounds if isinstance(result, str)]
    if errors:
        return errors[0]
    ordered = sorted(rounds, key=lambda result: result["seconds"])
    return ordered[(len(ordered) - 1) // 2] | {"peak_mb": max(result["peak_mb"] for result in rounds)}


def test_flatten_beside_its_peers(source, tmp_path):
    """Every contender writes the same number of rows; the table tells what it took."""
    wanted = os.environ.get("LIGHTMETER_BENCH_ONLY", ",".join(ALL)).split(",")
    rounds = in_turn([name for name in ALL if name in wanted], source, tmp_path)
    found = {name: middle(results) for name, results in rounds.items()}
    floors = [found.get(name) for name in FLOORS]
    whole = all(isinstance(floor, dict) for floor in floors)
    if whole and isinstance(found.get(OURS), dict):
        turns = zip(*(rounds[name] for name in (OURS, *FLOORS)), strict=True)
        found[OURS]["x_floors"] = median(
            own["seconds"] / sum(floor["seconds"] for floor in others) for own, *others in turns
        )
    show(found, floors if whole else [])
    print("\n".join(goal_lines(found, floors if whole else [])))
    rows = {figures["rows"] for figures in found.values() if isinstance(figures, dict)}
    assert len(rows) == 1, found


def test_duckdb_does_the_same_work(tmp_path):
    """The peer that comes nearest writes our very tables: the same columns, types and values."""
    source = tmp_path / "answers.ndjson"
    write_answers(source, 300)
    for name in (OURS, DUCKDB):
        (tmp_path / name).mkdir()
        assert isinstance(measured(name, source, tmp_path / name), dict)
    for table in set(FACT_TABLES) - set(OPTIONAL_TABLES):
        own, theirs = (
            f"FROM read_parquet('{tmp_path}/{files}/*.parquet')" for files in (f"{OURS}/tables/{table}", DUCKDB)
        )
        theirs = theirs.replace("*", table)
        columns = [duckdb.sql(f"DESCRIBE {rows}").fetchall() for rows in (own, theirs)]
        assert [column[:2] for column in columns[0]] == [column[:2] for column in columns[1]]
        for one, other in ((own, theirs), (theirs, own)):
            assert not duckdb.sql(f"({one}) EXCEPT ALL ({other})").fetchall(), table
