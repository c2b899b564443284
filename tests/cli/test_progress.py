"""A stop is heard: at once where nothing was sent, cleanly where something is in flight."""

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


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_a_plan_at_once(name):
    """What sends nothing is not waited for, and closes what it holds open."""
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


def test_a_stop_in_the_last_moment_counts():
    """A signal that comes when the plan is just done stops what would follow."""

    async def plan(_):
        yield PLANNING
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_with_progress(plan, cancel_on_signal=True)


def test_a_run_stops_by_itself():
    """A run hears of the stop, and its own last word counts."""

    async def run(stop):
        yield PLANNING
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        yield "stopped cleanly"

    assert run_with_progress(run) == "stopped cleanly"


def test_a_second_interrupt_leaves_what_is_in_flight():
    """Whoever presses Ctrl-C twice does not wait for a run in the background."""

    async def run(stop):
        yield PLANNING
        os.kill(os.getpid(), signal.SIGINT)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run_with_progress(lambda stop: in_background(run, stop))


def test_without_a_stop_the_last_word_counts():
    """What is driven to its end gives what it said last."""

    async def plan(_):
        yield PLANNING
        yield "the plan"

    assert run_with_progress(plan, cancel_on_signal=True) == "the plan"
