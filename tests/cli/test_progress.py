"""Signals cancel work that sends nothing, and stop a run cleanly."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from lightmeter.api.background_generator import in_background
from lightmeter.cli.progress import run_with_progress
from lightmeter.errors import Interrupted
from lightmeter.planning.progress import Progress

PLANNING = Progress("planning", 1, {})


@pytest.mark.parametrize(
    "name", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]
)
def test_a_signal_cancels_a_plan(name):
    """A signal cancels work that sends nothing, and closes its resources."""
    closed = []

    async def plan(_):
        try:
            yield PLANNING
            os.kill(os.getpid(), name)
            await asyncio.Event().wait()
        finally:
            closed.append(name)

    with pytest.raises(Interrupted, match="nothing was sent"):
        run_with_progress(plan, cancel_on_signal=True)
    assert closed == [name]


def test_a_signal_at_the_end_of_a_plan_counts():
    """A signal that arrives when the plan has just ended still stops the command."""

    async def plan(_):
        yield PLANNING
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_with_progress(plan, cancel_on_signal=True)


def test_a_signal_stops_a_run_cleanly():
    """A run receives the stop event, and the last value it yields is returned."""

    async def run(stop):
        yield PLANNING
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        yield "stopped cleanly"

    assert run_with_progress(run) == "stopped cleanly"


def test_a_second_interrupt_ends_the_process():
    """A second Ctrl-C does not wait for a run in the background."""

    async def run(stop):
        yield PLANNING
        os.kill(os.getpid(), signal.SIGINT)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_with_progress(lambda stop: in_background(run, stop))


def test_the_last_value_is_returned():
    """Without a signal, the last value that the generator yields is returned."""

    async def plan(_):
        yield PLANNING
        yield "the plan"

    assert run_with_progress(plan, cancel_on_signal=True) == "the plan"
