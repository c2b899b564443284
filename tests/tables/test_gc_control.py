"""The garbage collector runs rarely during a run, and its state is restored afterwards."""

from __future__ import annotations

import gc

import pytest

from lightmeter.tables import gc_control
from lightmeter.tables.gc_control import reduce_gc


@pytest.fixture(autouse=True)
def _outside_of_the_block_of_all_tests(monkeypatch):
    """The collector is as if `conftest.py` had opened no block, and afterwards as it was."""
    before = gc.get_threshold()
    monkeypatch.setattr(gc_control, "_open_blocks", [])
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)
    gc.freeze()


@pytest.mark.parametrize("own", [700, 50_000, 0])
def test_the_collector_is_eased_for_all_that_overlap_and_then_as_it_was(own):
    """Two overlapping blocks, in whatever order they end, leave thresholds and frozen objects as they found them."""
    gc.set_threshold(own, 10, 10)
    first, second = reduce_gc(), reduce_gc()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == (10_000 if own == 700 else own)
    assert gc.get_freeze_count() > 1000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (own, 10, 10)
    assert gc.get_freeze_count() == 0


def test_what_somebody_else_has_frozen_stays_frozen():
    """Objects that a server froze before it forked stay frozen, and newer objects are not frozen with them."""
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        newer = [[] for _ in range(10_000)]
        with reduce_gc():
            assert frozen / 2 < gc.get_freeze_count() < frozen + len(newer)
        assert frozen / 2 < gc.get_freeze_count() < frozen + len(newer)
    finally:
        gc.unfreeze()
