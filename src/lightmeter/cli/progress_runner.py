"""Drives a generator of progress to its end on the command line: shows it, and turns Ctrl-C into a clean stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final

from lightmeter.api.background_generator import cancel_all_work
from lightmeter.cli.terminal import ProgressDisplay
from lightmeter.errors import Interrupted
from lightmeter.planning.progress import Progress

__all__ = ["run_with_progress"]


SIGNAL_TURNS: Final = 3
"""Turns of the loop after which a signal that came before them has been handled: woken, read, called."""


def run_with_progress(steps: Callable[[asyncio.Event], AsyncGenerator[Any]], *, at_once: bool = False) -> Any:
    """Run `steps(stop)` to its end, showing its progress; returns the last thing it yields.

    The first SIGINT or SIGTERM sets `stop`: nothing more is sent, what is in flight is waited for. A second SIGINT ends
    the process at once; what was in flight is then resolved by `lightmeter resume`.

    Args:
        steps: The work.
        at_once: It sends nothing, so the first signal ends it.

    Raises:
        Interrupted: it was ended at once.
    """
    with asyncio.Runner() as runner:
        try:
            return runner.run(_drive(steps, at_once=at_once))
        except KeyboardInterrupt:
            cancel_all_work()
            raise


async def _drive(steps: Callable[[asyncio.Event], AsyncGenerator[Any]], *, at_once: bool) -> Any:
    stop = asyncio.Event()
    with ProgressDisplay() as watch, _stopping_on_signals(stop, watch):
        if not at_once:
            return await _watched(steps(stop), watch)
        work, wished = asyncio.create_task(_watched(steps(stop), watch)), asyncio.create_task(stop.wait())
        await asyncio.wait({work, wished}, return_when=asyncio.FIRST_COMPLETED)
        wished.cancel()
        for _ in range(SIGNAL_TURNS):
            await asyncio.sleep(0)
        if stop.is_set():
            work.cancel()
            await asyncio.wait({work})
            raise Interrupted("Stopped by the user while planning: nothing was sent.")
        return await work


async def _watched(steps: AsyncGenerator[Any], watch: ProgressDisplay) -> Any:
    last = None
    async with aclosing(steps) as each:
        async for step in each:
            if isinstance(step, Progress):
                watch.look(step)
            last = step
    return last


@contextmanager
def _stopping_on_signals(stop: asyncio.Event, watch: ProgressDisplay) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    names: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)

    def wished() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        watch.say("stopping: nothing more is sent, waiting for what is in flight (Ctrl-C again to leave)")

    try:
        for name in names:
            loop.add_signal_handler(name, wished)
    except NotImplementedError:  # Windows has none: Ctrl-C raises there
        names = ()
    try:
        yield
    finally:
        for name in names:
            loop.remove_signal_handler(name)
