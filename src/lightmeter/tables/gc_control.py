"""Control of Python's cyclic garbage collector during work that creates many small objects.

Decoded answers have no reference cycles: reference counting frees them. Yet each few hundred new containers start a
collection over all objects that are alive, which would take a third of the time of decoding.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collector_eased", "collector_paused"]

_SELDOM: Final = 10_000
"""Net new containers between two collections inside `collector_eased`: about 5 MB. Python's default is 700, which
requests in flight reach ten times a second."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Turn automatic collections off inside the block; afterwards the collector is as it was before.

    The collector belongs to the process: other threads do without it too.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Ease:
    """State of the collector before the first of overlapping `collector_eased` blocks."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.wanted = 0
        self.thresholds = gc.get_threshold()
        self.frozen = False


_EASE: Final = _Ease()


@contextmanager
def collector_eased() -> Iterator[None]:
    """Make collections rare inside the block, and leave out objects older than it; for long work that awaits.

    Older objects, such as all modules, are about a hundred thousand that are never freed: scanning them again and again
    takes a tenth of the time of a run. At the end of the last of overlapping blocks the collector is as it was before.
    """
    with _EASE.guard:
        _EASE.wanted += 1
        if _EASE.wanted == 1:
            _EASE.thresholds = gc.get_threshold()
            _EASE.frozen = not gc.get_freeze_count()  # else somebody has frozen his own: that is left alone
            if _EASE.frozen:
                gc.freeze()
            if 0 < _EASE.thresholds[0] < _SELDOM:
                gc.set_threshold(_SELDOM, *_EASE.thresholds[1:])
    try:
        yield
    finally:
        with _EASE.guard:
            _EASE.wanted -= 1
            if not _EASE.wanted:
                gc.set_threshold(*_EASE.thresholds)
                if _EASE.frozen:
                    gc.unfreeze()
