"""How much of the machine is ours."""

from __future__ import annotations

import os

__all__ = ["process_cpu_count"]


def process_cpu_count() -> int:
    """Cores that this process may use: the calls at once that gain anything."""
    # Containers and schedulers narrow the affinity; cpu_count would still count the whole machine.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
