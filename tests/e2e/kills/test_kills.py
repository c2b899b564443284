"""kill -9, at random instants and at each kind of system call: nothing paid is lost, nothing is paid twice.

`make bench BENCH=tests/bench/toolkit_kills` does the same at ten times as many instants.
"""

from __future__ import annotations

import random

import pytest

from tests.e2e.kills.processes import Fault
from tests.e2e.kills.scenario import (
    POLLED,
    SYNCHRONOUS,
    SYSTEM_CALLS,
    count_calls,
    kill_at_call,
    kill_repeatedly,
    measure_seconds,
)
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

KILLS = {"fdatasync": 6, "pwrite64": 4, "sendto": 4, "recvfrom": 4, "connect": 1, "rename": 2}
"""Number of kills at each system call, for each batch size."""

BATCH_OPTIONS = pytest.mark.parametrize("batch_option", [SYNCHRONOUS, POLLED], ids=["at once", "polled"])


def evenly_spaced(calls: int, kills: int) -> list[int]:
    """Return the numbers of `kills` calls, evenly spaced from the first call to the last."""
    return sorted({1 + (calls - 1) * number // kills for number in range(kills)})


@pytest.mark.sweep
@BATCH_OPTIONS
@pytest.mark.parametrize("call", SYSTEM_CALLS)
def test_killed_at_a_step(traced_factory, batch_option, call):
    """A run killed at a system call and resumed loses no answer and at most `--max-at-risk` credits.

    No asset is charged twice, and a finished run sends nothing more.
    """
    places = evenly_spaced(count_calls(traced_factory, call, *batch_option), KILLS[call])
    lost = [kill_at_call(traced_factory, Fault(call, when), *batch_option) for when in places]
    assert lost.count(None) < (len(lost) + 1) // 2  # a thread may be less busy than before


@pytest.mark.parametrize(
    "batch_option",
    # The daily kill of a run that polls is that of test_doubts.py.
    [pytest.param(SYNCHRONOUS, id="at once"), sweep(POLLED, name="polled")],
)
def test_killed_at_random_again_and_again(factory, batch_option):
    """A run whose starts are killed at random instants keeps everything that it has recorded."""
    random_numbers = random.Random(f"{batch_option}")  # noqa: S311 (instants, not secrets)
    longest_s, kills = measure_seconds(factory, *batch_option), 0
    while kills < 2:
        kills += kill_repeatedly(factory, random_numbers, longest_s, *batch_option)
        longest_s *= 0.8  # the machine may be quicker by now
