"""The garbage collector runs rarely during a run, and its state is restored afterwards."""

from __future__ import annotations

import gc

import pytest

from lightmeter.tables.gc_control import reduce_gc


@pytest.mark.parametrize("own", [700, 50_000, 0])
def test_the_collector_is_eased_for_all_that_overlap_and_then_as_it_was(own):
    """Two overlapping blocks, in whatever order they end, leave thresholds and frozen objects as they found them."""
    before = gc.get_threshold()
    gc.unfreeze()  # what conftest.py froze
    try:
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
    finally:
        gc.set_threshold(*before)


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
