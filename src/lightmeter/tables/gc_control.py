"""Control of Python's cyclic garbage collector during work that creates many small objects.

Decoded answers have no reference cycles, so reference counting alone frees them. But Python starts a collection after
every 700 new containers, and these collections would take a third of the time of decoding.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_RARE_THRESHOLD: Final = 10_000
"""Net new containers between two collections inside `collector_eased`, about 5 MB. Python's default is 700, which a run
reaches ten times a second."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Turn automatic collections off inside the block, for all threads, and restore the setting after it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _SavedState:
    """State of the collector before the first of overlapping `collector_eased` blocks.

    Attributes:
        guard: Lock around the other attributes.
        open_blocks: Number of blocks that have not ended.
        thresholds: `gc.get_threshold()` before the first block.
        frozen: Whether the first block called `gc.freeze()`.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.open_blocks = 0
        self.thresholds = gc.get_threshold()
        self.frozen = False


_SAVED_STATE: Final = _SavedState()


@contextmanager
def collector_eased() -> Iterator[None]:
    """Make collections rare inside the block, and exclude objects that existed before it.

    About 100,000 older objects, such as those of modules, are never freed: scanning them repeatedly would take a tenth
    of the time of a run. Blocks may overlap; the end of the last one restores the state of the collector.
    """
    with _SAVED_STATE.guard:
        _SAVED_STATE.open_blocks += 1
        if _SAVED_STATE.open_blocks == 1:
            _SAVED_STATE.thresholds = gc.get_threshold()
            _SAVED_STATE.frozen = not gc.get_freeze_count()  # objects that other code has frozen stay frozen
            if _SAVED_STATE.frozen:
                gc.freeze()
            if 0 < _SAVED_STATE.thresholds[0] < _RARE_THRESHOLD:
                gc.set_threshold(_RARE_THRESHOLD, *_SAVED_STATE.thresholds[1:])
    try:
        yield
    finally:
        with _SAVED_STATE.guard:
            _SAVED_STATE.open_blocks -= 1
            if not _SAVED_STATE.open_blocks:
                gc.set_threshold(*_SAVED_STATE.thresholds)
                if _SAVED_STATE.frozen:
                    gc.unfreeze()
