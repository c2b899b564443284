"""The garbage collector, out of the way while many small objects come and go.

Parsed answers are trees: they die with their last reference and leave nothing to collect. But each few hundred new
containers set off a walk over all that are alive, and flattening would spend a third of its time on that.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collector_eased", "collector_paused"]

_SELDOM: Final = 10_000
"""New containers, less those that have died, between two collections while it is eased: some 5 MB. Python's own is 700,
which requests in flight pass ten times a second."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """No automatic collections inside the block; afterwards the collector is as it was, whatever happened.

    The collector is the process's: other threads do without it too. Keep blocks as short as a chunk of work.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Ease:
    """How the collector was before the first of those who want it eased."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.wanted = 0
        self.thresholds = gc.get_threshold()
        self.frozen = False


_EASE: Final = _Ease()


@contextmanager
def collector_eased() -> Iterator[None]:
    """Seldom collections inside the block, and only of what is newer than it; for work that lasts, and awaits.

    What was there before, such as all modules, is a hundred thousand objects that nothing will free: to look at them
    again and again takes a tenth of the time of a run. Once the last of overlapping blocks is left, the collector is as
    it was.
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
