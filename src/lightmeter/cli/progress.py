"""Runs the work of a command, such as planning or a run. Shows its progress, and turns Ctrl-C into a clean stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing
from typing import Any

from lightmeter.api.background_generator import cancel_all_work
from lightmeter.api.progress_display import ProgressDisplay
from lightmeter.errors import Interrupted
from lightmeter.planning.progress import Progress
from lightmeter.stop_signals import on_stop_signals


def run_with_progress(steps: Callable[[asyncio.Event], AsyncGenerator[Any]], *, cancel_on_signal: bool = False) -> Any:
    """Run the generator `steps(stop)` to its end, show its progress, and return the last value that it yields.

    The first signal that asks to stop, such as SIGINT, SIGTERM or SIGHUP, sets the event `stop`: no more requests are
    sent, but the requests in flight are awaited. A second SIGINT ends the process immediately. With `cancel_on_signal`,
    the first signal cancels the work at once; use this only for work that sends no paid requests.

    Raises:
        Interrupted: the work was cancelled.
    """
    with asyncio.Runner() as runner:
        try:
            return runner.run(_run(steps, cancel_on_signal=cancel_on_signal))
        except KeyboardInterrupt:
            cancel_all_work()
            raise


async def _run(steps: Callable[[asyncio.Event], AsyncGenerator[Any]], *, cancel_on_signal: bool) -> Any:
    stop = asyncio.Event()
    with ProgressDisplay() as display, _stop_on_signals(stop, display):
        if not cancel_on_signal:
            return await _show_steps(steps(stop), display)
        work = asyncio.create_task(_show_steps(steps(stop), display))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        # A signal that has already come needs three steps of the event loop until its handler has set `stop`.
        for _ in range(3):
            await asyncio.sleep(0)
        if stop.is_set():
            work.cancel()
            await asyncio.wait({work})
            raise Interrupted(
                "Stopped by the user while planning: nothing was sent.",
                hint="The same command continues with the rows that are not checked yet.",
            )
        return await work


async def _show_steps(steps: AsyncGenerator[Any], display: ProgressDisplay) -> Any:
    last = None
    async with aclosing(steps) as open_steps:
        async for step in open_steps:
            if isinstance(step, Progress):
                display.show_progress(step)
            last = step
    return last


def _stop_on_signals(stop: asyncio.Event, display: ProgressDisplay) -> AbstractContextManager[None]:
    loop = asyncio.get_running_loop()

    def handle() -> None:
        if not stop.is_set():  # (a closed terminal sends several signals)
            stop.set()
            loop.remove_signal_handler(signal.SIGINT)
            display.print_line(
                "stopping: no more requests are sent, waiting for those in flight (Ctrl-C again to quit)"
            )

    return on_stop_signals(handle)
