"""The service answers damaged and malicious media without leaks of memory, files or processes."""

from __future__ import annotations

import sys

import pytest

from tests.service import mutations

COUNT = 200
SEED = 20261121
GROWTH = 0.15
"""Resident memory may differ by so much between the first and the last third: pictures of very different size come in
any order, and the allocator keeps what it had. A leak of one file's content in ten would be many times that."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@pytest.mark.sweep
def test_the_same_seed_makes_the_same_files(tmp_path):
    """The generated files are reproducible and have every kind of malicious file."""
    (tmp_path / "again").mkdir()
    files = mutations.mutations(COUNT, SEED, tmp_path)
    assert (files == mutations.mutations(COUNT, SEED, tmp_path / "again")) is True
    assert {name for name, _ in files} >= set(mutations.crafted()) | {"a.jpg", "tiny.avi", "samoyed.mp4"}


@pytest.mark.sweep
async def test_two_hundred_mutations_are_survived(tmp_path):
    """Each file gets an asset, a message or an error, without leaks of processes, files or memory."""
    files = mutations.mutations(COUNT, SEED, tmp_path)
    survived = await mutations.survive(files, tmp_path)
    assert survived.unanswered == []
    assert sum(survived.outcomes.values()) == COUNT
    assert survived.outcomes["asset"] > 0 < survived.outcomes["error"]
    assert (survived.left_processes, survived.left_files) == ([], [])
    before, after = survived.descriptors
    assert after <= before, survived
    first, last = survived.thirds()
    assert last <= first * (1 + GROWTH), survived
    assert survived.exit_code == 0
