"""The number of CPU cores that this process may use."""

from __future__ import annotations

import os


def process_cpu_count() -> int:
    """Return the number of CPU cores that this process may use."""
    # Containers and schedulers restrict the affinity; `os.cpu_count` still counts all cores of the machine.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
