"""How a plan, a run and its end look on a terminal, and as plain lines elsewhere."""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import Any, Final, Self

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from lightmeter.api.run_result import Run, RunSummary
from lightmeter.planning.plan import Plan, ReasonCount
from lightmeter.planning.price_table import describe_own_prices
from lightmeter.planning.progress import Progress as Look

__all__ = ["ProgressDisplay", "print_json", "show_plan", "show_summary"]

PLAIN_EVERY_S: Final = 5.0
MAX_REASONS: Final = 12
PLAIN_WIDTH: Final = 240


def print_json(value: dict[str, Any]) -> None:
    """One JSON object, the last line of standard output."""
    click.echo(json.dumps(value))


class ProgressDisplay:
    """Progress on standard error: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._said_s = -PLAIN_EVERY_S
        self._phase = ""
        self._notes = 0
        if self._console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, facts="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar, or a plain line."""
        if self._bar is not None:
            self._console.print(text)
        else:
            click.echo(text, err=True)

    def look(self, look: Look) -> None:
        """Show where the work stands."""
        for note in look.notes[self._notes :]:
            self.say(f"note: {note}")
        self._notes = len(look.notes)
        if self._bar is not None:
            total = None if look.phase == "planning" else look.rows
            done = look.rows if look.phase == "planning" else look.finished
            self._bar.update(
                self._task,
                description="waiting" if look.waiting else look.phase,
                total=total,
                completed=done,
                facts=_facts(look),
            )
        elif look.seconds - self._said_s >= PLAIN_EVERY_S or look.phase != self._phase:
            self._said_s, self._phase = look.seconds, look.phase
            rows = f"{look.rows} rows" if look.phase == "planning" else f"{look.finished}/{look.rows} rows"
            click.echo(f"{look.phase}: {rows} {_facts(look)}".rstrip(), err=True)


def _facts(look: Look) -> str:
    if look.phase == "planning":
        return f"{look.rate:.0f}/s"
    parts = [look.waiting] if look.waiting is not None else [f"{look.rate:.1f}/s"] if look.rate else []
    cap = f" of {look.budget}" if look.budget is not None else ""
    parts.append(f"{look.paid} credits paid{cap}")
    if look.held:
        parts.append(f"{look.held} held")
    if doubt := look.counts.get("in_doubt"):
        parts.append(f"{doubt} in doubt")
    if look.eta_s is not None and look.phase == "running":
        parts.append(f"ETA {look.eta_s:.0f} s")
    return "· " + " · ".join(parts)


def _console(*, err: bool) -> Console:
    """A terminal's own width; elsewhere lines are for logs and grep, and are not broken."""
    console = Console(stderr=err, highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def show_plan(plan: Plan, *, err: bool) -> None:
    """The plan as a person reads it; `err` sends it to standard error."""
    console = _console(err=err)
    where = plan.base_url or "the embedded service"
    console.print(f"[bold]{plan.manifest}[/]: {plan.rows} rows read, {plan.counts['pending']} to send to {where}")
    cap = f", budget {plan.options.budget} (hard cap)" if plan.options.budget is not None else ""
    console.print(f"credits: [bold]{plan.credits}[/]{cap}")
    for sentence in plan.affordability_sentences:
        console.print(sentence)
    if plan.service.note is not None:
        console.print(f"[yellow]note[/] {escape(plan.service.note)}", soft_wrap=True)
    if plan.options.prices is not None:
        console.print(describe_own_prices(plan.options.prices))
    if plan.counts["ok"]:
        console.print(f"{plan.counts['ok']} rows are answered by earlier runs, which saves {plan.saved}")
    _show_reasons(console, list(plan.reasons))
    if plan.videos is not None and plan.videos.sentence is not None:
        console.print(plan.videos.sentence)
    for sentence in plan.advice:
        console.print(f"  [dim]advice[/] {sentence}")
    for sentence in plan.needs_consent:
        console.print(f"  [yellow]needs your yes[/] {sentence}")


def _show_reasons(console: Console, reasons: list[ReasonCount]) -> None:
    if not reasons:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("status", "rows", "reason", "for example"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for reason in reasons[:MAX_REASONS]:
        table.add_row(reason.status, str(reason.rows), reason.reason, reason.example)
    console.print(table)
    if len(reasons) > MAX_REASONS:
        console.print(f"… and {len(reasons) - MAX_REASONS} more reasons; all are in the assets table.")


def show_summary(run: Run, *, err: bool = False) -> RunSummary:
    """The end of a run: rows, credits, seconds, where the tables are, what to try next."""
    summary = run.summary()
    console = _console(err=err)
    stands = ", ".join(f"{rows} {status}" for status, rows in summary.counts.items() if rows)
    console.print(f"[bold]{summary.rows} rows[/]: {stands or 'none'}")
    cap = f" of {summary.budget}" if summary.budget is not None else ""
    held = f", {summary.held} held" if summary.held else ""
    balance = "" if summary.balance_after is None else f"; balance {summary.balance_after}"
    balance += "" if summary.balance_is_current or not balance else " (read before the last requests)"
    console.print(
        f"{summary.paid} credits paid{cap}{held}{balance}; {summary.requests} requests, {summary.seconds:.1f} s"
    )
    _show_reasons(console, run.reasons())
    tables = run.folder / "tables"
    if tables.exists():
        console.print(f"tables: {tables}")
    if run.stopped_by is not None:
        hint = run.stopped_by.hint
        hint = "" if "lightmeter resume" in hint else f" {hint}"  # that command is named below, with its options
        console.print(f"[yellow]stopped:[/] {escape(f'{run.stopped_by}{hint}')}", soft_wrap=True)
    for step in run.next_steps():
        console.print(f"[yellow]next:[/] {escape(step)}", soft_wrap=True)
    sys.stderr.flush()
    return summary
