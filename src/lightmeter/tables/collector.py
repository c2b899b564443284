"""The garbage collector, out of the way while many small objects come and go.

Parsed answers are trees: they die with their last reference and leave nothing to collect. But each few hundred new
containers set off a walk over all that are alive, and flattening would spend a third of its time on that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


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
