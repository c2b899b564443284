"""Shows the progress of planning and of a run: on a terminal, in a notebook, or as lines of text."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing
from typing import Any, Final, Protocol, Self, TypeVar

from rich import progress as rich_progress

from lightmeter.html_fragments import esc
from lightmeter.planning.progress import Progress
from lightmeter.pricing.estimate import counted
from lightmeter.terminal_console import make_terminal_console

T = TypeVar("T")

_PLAIN_INTERVAL_S: Final = 5.0
_NOTEBOOK_INTERVAL_S: Final = 0.25


async def last_step(steps: AsyncGenerator[Progress | T], *, show: bool | None = None) -> T:
    """Run `steps` to its end, and return its last value: a plan, a run or a report.

    Args:
        steps: A generator that yields progress, and at last the result.
        show: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
    """
    with progress_display(show=show) as display:
        async with aclosing(steps) as open_steps:
            async for step in open_steps:
                if not isinstance(step, Progress):
                    return step
                display.show_progress(step)
    raise AssertionError("the last value is not a progress")


class _Display(Protocol):
    def show_progress(self, progress: Progress) -> None: ...


def progress_display(*, show: bool | None = None) -> AbstractContextManager[_Display]:
    """Return a display that fits where the code runs: in a Jupyter notebook, on a terminal, or elsewhere.

    `show` is whether to show progress. None shows it in a notebook and on a terminal, but not elsewhere.
    """
    if show is not False and (display := _notebook_display()) is not None:
        return NotebookProgressDisplay(display)
    if show or (show is None and sys.stderr is not None and sys.stderr.isatty()):
        return ProgressDisplay()
    return NoProgressDisplay()


def _notebook_display() -> Any:
    """Return the function `display` of IPython if a Jupyter kernel runs this code; else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if shell is None or not hasattr(shell, "kernel") else ipython.display.display  # type: ignore[union-attr]


class NoProgressDisplay:
    """Stand-in for a progress display that shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_progress(self, progress: Progress) -> None:
        """Ignore `progress`: show nothing."""


class NotebookProgressDisplay:
    """Display of progress in the output of a notebook cell: a bar and one line, updated a few times a second.

    Args:
        display: IPython's function `display`.
    """

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None
        self._shown_at_s = -_NOTEBOOK_INTERVAL_S
        self._last: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._show(self._last)

    def show_progress(self, progress: Progress) -> None:
        """Update the cell's output, at most a few times a second. The latest progress always appears in the end."""
        is_new_phase = self._last is None or progress.phase != self._last.phase
        self._last = progress
        if is_new_phase or progress.seconds - self._shown_at_s >= _NOTEBOOK_INTERVAL_S:
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        self._shown_at_s = progress.seconds
        content = {"text/html": progress_as_html(progress), "text/plain": _line(progress)}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def progress_as_html(progress: Progress) -> str:
    """Return `progress` (of planning or of a run) as HTML: a bar, one line of text, and the notes of the run."""
    is_planning = progress.phase in ("planning", "checking")  # the number of rows is not known yet
    value = "" if is_planning else f' max="{progress.rows or 1}" value="{progress.finished}"'
    bar = f'<progress style="width:16em" aria-label="Progress"{value}></progress>'
    notes = "".join(f"<div>note: {esc(note)}</div>" for note in progress.notes)
    return f"<div>{bar} {esc(_line(progress))}</div>{notes}"


def _write_line(text: str) -> None:
    """Write `text` as a line to standard error, and flush it."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _line(progress: Progress) -> str:
    if progress.phase == "stopping":
        return f"stopping: {_details(progress).removeprefix('· ')}"
    is_planning = progress.phase in ("planning", "checking")
    rows = counted(progress.rows, "row") if is_planning else f"{progress.finished}/{progress.rows} rows"
    more = " read so far" if progress.planning else ""
    return f"{progress.phase}: {rows}{more} {_details(progress)}".rstrip()


class ProgressDisplay:
    """Display of progress on standard error: a bar on a terminal, elsewhere a line of text every few seconds."""

    def __init__(self) -> None:
        self._console = make_terminal_console(err=True)
        self._bar: rich_progress.Progress | None = None
        self._printed_at_s = -_PLAIN_INTERVAL_S
        self._phase = ""
        self._notes_shown = 0
        if self._console.is_terminal:
            self._bar = rich_progress.Progress(
                rich_progress.SpinnerColumn(),
                rich_progress.TextColumn("{task.description}", markup=False),
                rich_progress.BarColumn(bar_width=30),
                rich_progress.MofNCompleteColumn(),
                rich_progress.TextColumn("{task.fields[details]}", markup=False),
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
        """Print `text` as a line on standard error, above the progress bar if there is one."""
        if self._bar is not None:
            self._console.print(text)
        else:
            _write_line(text)

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
            _write_line(_line(progress))


def _details(progress: Progress) -> str:
    if progress.phase in ("planning", "checking"):
        return f"{progress.rate:.0f} rows/s" if progress.rate else ""
    if progress.phase == "screening":
        return f"· {progress.rate:.1f} rows/s" if progress.rate else ""
    if progress.phase == "stopping":
        about = "" if progress.eta_s is None else f", about {progress.eta_s:.0f} s"
        return f"· {counted(progress.in_flight, 'request')}{about} · {progress.paid} credits paid"
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
        parts.append(f"{'budget spent in' if progress.eta_is_budget else 'ETA'} {progress.eta_s:.0f} s")
    return "· " + " · ".join(parts)
