"""Thousands of damaged and malicious files: what the tests do with two hundred, by default ten times over.

Tells milliseconds for each file and how the service's memory went. `LIGHTMETER_BENCH_MUTATIONS` says how many: 20000
take a quarter of an hour and tell a cache, which levels off, from a leak, which does not.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

COUNT = int(os.environ.get("LIGHTMETER_BENCH_MUTATIONS", "2000"))
SEED = int(os.environ.get("LIGHTMETER_BENCH_SEED", "1"))
GROWTH = 0.1

_path = Path(__file__).parents[1] / "service" / "mutations.py"
_spec = importlib.util.spec_from_file_location("lightmeter_bench_mutations", _path)
mutations = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = mutations
_spec.loader.exec_module(mutations)


@pytest.mark.slow
async def test_thousands_of_mutations_are_survived(tmp_path):
    """Each is answered, nothing is left over, and memory at the end is what it was in the beginning."""
    survived = await mutations.survive(mutations.mutations(COUNT, SEED, tmp_path), tmp_path)
    print(f"\n{survived}")  # noqa: T201 (a benchmark is run to be read)
    assert survived.unanswered == []
    assert sum(survived.outcomes.values()) == COUNT
    assert (survived.left_processes, survived.left_files, survived.exit_code) == ([], [], 0)
    before, after = survived.descriptors
    assert after <= before
    first, last = survived.thirds()
    assert last <= first * (1 + GROWTH)
