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
"""Inside `reduce_gc`, a garbage collection starts when there are this many more containers than after the last.

They take about 5 MB. Python's default is 700.
"""


@contextmanager
def pause_gc() -> Iterator[None]:
    """Turn off Python's automatic garbage collection inside the block, for all threads.

    The end of the block turns it on again if it was on before.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_lock: Final = threading.Lock()
_open_blocks: Final[list[tuple[tuple[int, int, int], bool]]] = []
"""One entry for each open `reduce_gc` block; all entries are equal. An entry has two values: the collector's
thresholds before the first of these blocks, and whether that first block froze the older objects."""


@contextmanager
def reduce_gc() -> Iterator[None]:
    """Make Python's garbage collections rare inside the block, and keep them from scanning older objects.

    About 100,000 objects, such as those of modules, exist before a run. To scan them in each collection would take a
    tenth of the time of the run. Blocks may overlap: when the last open block ends, the state of the collector before
    the first block is restored.
    """
    with _lock:
        thresholds, freezes = _open_blocks[0] if _open_blocks else (gc.get_threshold(), not gc.get_freeze_count())
        if not _open_blocks:
            if freezes:  # else other code has frozen objects, and they stay frozen
                gc.freeze()
            if 0 < thresholds[0] < _RARE_THRESHOLD:
                gc.set_threshold(_RARE_THRESHOLD, *thresholds[1:])
        _open_blocks.append((thresholds, freezes))
    try:
        yield
    finally:
        with _lock:
            thresholds, freezes = _open_blocks.pop()
            if not _open_blocks:
                gc.set_threshold(*thresholds)
                if freezes:
                    gc.unfreeze()
