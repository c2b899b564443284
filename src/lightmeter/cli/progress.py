"""Runs a plan or a run from the command line: shows its progress, and turns Ctrl-C into a clean stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final, Self

import click
from rich import progress as rich_progress
from rich.console import Console

from lightmeter.api.background_generator import cancel_all_work
from lightmeter.errors import Interrupted
from lightmeter.planning.progress import Progress

_PLAIN_INTERVAL_S: Final = 5.0


class _ProgressDisplay:
    """Display of progress on standard error: a bar on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: rich_progress.Progress | None = None
        self._printed_at_s = -_PLAIN_INTERVAL_S
        self._phase = ""
        self._notes_shown = 0
        if self._console.is_terminal:
            self._bar = rich_progress.Progress(
                rich_progress.SpinnerColumn(),
                rich_progress.TextColumn("{task.description}"),
                rich_progress.BarColumn(bar_width=30),
                rich_progress.MofNCompleteColumn(),
                rich_progress.TextColumn("{task.fields[details]}"),
                rich_progress.TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, details="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def print_line(self, text: str) -> None:
        """Print a line on standard error, above the progress bar if there is one."""
        if self._bar is not None:
            self._console.print(text)
        else:
            click.echo(text, err=True)

    def show_progress(self, progress: Progress) -> None:
        """Update the progress bar; without a terminal, print a line every few seconds and when the phase changes."""
        for note in progress.notes[self._notes_shown :]:
            self.print_line(f"note: {note}")
        self._notes_shown = len(progress.notes)
        is_planning = progress.phase in ("planning", "checking")
        if self._bar is not None:
            self._bar.update(
                self._task,
                description="waiting" if progress.waiting else progress.phase,
                total=None if is_planning else progress.rows,
                completed=progress.rows if is_planning else progress.finished,
                details=_details(progress),
            )
        elif progress.seconds - self._printed_at_s >= _PLAIN_INTERVAL_S or progress.phase != self._phase:
            self._printed_at_s, self._phase = progress.seconds, progress.phase
            rows = f"{progress.rows} rows" if is_planning else f"{progress.finished}/{progress.rows} rows"
            rows += " read so far" if progress.planning else ""
            click.echo(f"{progress.phase}: {rows} {_details(progress)}".rstrip(), err=True)


def _details(progress: Progress) -> str:
    if progress.phase in ("planning", "checking"):
        return f"{progress.rate:.0f} rows/s"
    if progress.phase == "screening":
        return f"· {progress.rate:.1f} rows/s"
    parts = [progress.waiting] if progress.waiting is not None else [f"{progress.rate:.1f}/s"] if progress.rate else []
    budget = f" of {progress.budget}" if progress.budget is not None else ""
    parts.append(f"{progress.paid} credits paid{budget}")
    if progress.planning:
        parts.append("reading the manifest")
    if progress.held:
        parts.append(f"{progress.held} held")
    if in_doubt := progress.counts.get("in_doubt"):
        parts.append(f"{in_doubt} in doubt")
    if progress.eta_s is not None and progress.phase == "running":
        parts.append(f"ETA {progress.eta_s:.0f} s")
    return "· " + " · ".join(parts)


def run_with_progress(steps: Callable[[asyncio.Event], AsyncGenerator[Any]], *, cancel_on_signal: bool = False) -> Any:
    """Run the generator `steps(stop)` to its end, show its progress, and return the last value it yields.

    The first SIGINT or SIGTERM sets the event `stop`: no more requests are sent, those in flight are awaited. A second
    SIGINT ends the process immediately. With `cancel_on_signal`, the first signal cancels the work at once, which is
    safe for work that sends no paid requests.

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
    with _ProgressDisplay() as display, _stop_on_signals(stop, display):
        if not cancel_on_signal:
            return await _show_steps(steps(stop), display)
        work = asyncio.create_task(_show_steps(steps(stop), display))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for _ in range(
            3
        ):  # steps of the event loop in which an earlier signal wakes it, is read, and calls its handler
            await asyncio.sleep(0)
        if stop.is_set():
            work.cancel()
            await asyncio.wait({work})
            raise Interrupted(
                "Stopped by the user while planning: nothing was sent.",
                hint="The same command continues with the rows that are not checked yet.",
            )
        return await work


async def _show_steps(steps: AsyncGenerator[Any], display: _ProgressDisplay) -> Any:
    last = None
    async with aclosing(steps) as open_steps:
        async for step in open_steps:
            if isinstance(step, Progress):
                display.show_progress(step)
            last = step
    return last


@contextmanager
def _stop_on_signals(stop: asyncio.Event, display: _ProgressDisplay) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signals: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)

    def handle() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        display.print_line("stopping: no more requests are sent, waiting for those in flight (Ctrl-C again to quit)")

    try:
        for number in signals:
            loop.add_signal_handler(number, handle)
    except NotImplementedError:  # on Windows, where Ctrl-C raises KeyboardInterrupt instead
        signals = ()
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
