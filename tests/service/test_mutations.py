"""Damaged and malicious media: the service answers each, stays what it was, and leaves nothing lying about."""

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


def test_the_same_seed_makes_the_same_files(tmp_path):
    """What fails can be looked at again; each kind of malice is among them."""
    (tmp_path / "again").mkdir()
    files = mutations.mutations(COUNT, SEED, tmp_path)
    assert (files == mutations.mutations(COUNT, SEED, tmp_path / "again")) is True
    assert {name for name, _ in files} >= set(mutations.crafted()) | {"a.jpg", "tiny.avi", "samoyed.mp4"}


async def test_two_hundred_mutations_are_survived(tmp_path):
    """An asset, a sentence or a refusal for each; no process, file or descriptor is left, and memory stays flat."""
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
