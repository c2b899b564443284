"""Prints plans and summaries of runs, for people and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightmeter.api.check import CheckReport
from lightmeter.api.run_result import Run, RunSummary
from lightmeter.journal.header import read_run_header
from lightmeter.planning.plan import Plan
from lightmeter.planning.plan_text import ReasonCount, no_usable_row
from lightmeter.planning.price_sources import describe_own_prices
from lightmeter.pricing.estimate import counted
from lightmeter.terminal_console import make_terminal_console

FIRST_QUERY: Final = "SELECT item_id, top_tag, color_name, nsfw FROM items ORDER BY nsfw DESC"
"""SQL query that commands suggest after a run."""

_MAX_REASONS: Final = 12
_PLAIN_WIDTH: Final = 240
"""Width of output to a file or a pipe, in characters: wide enough that lines for logs and grep are not wrapped."""


def print_json(value: dict[str, Any]) -> None:
    """Print `value` as one line of JSON, the last line of standard output."""
    click.echo(json.dumps(value))


def make_console(*, err: bool = False) -> Console:
    """Return a console on standard output or, if `err` is true, on standard error.

    If this is not a terminal, lines are wrapped only after 240 characters (`_PLAIN_WIDTH`).
    """
    console = make_terminal_console(err=err)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    return console


def _print_styled(console: Console, style: str, start: str, rest: str, *, soft_wrap: bool | None = None) -> None:
    """Print a line that begins with the text `start` in a style of rich, such as `bold`."""
    console.print(Text.assemble((start, style), rest), soft_wrap=soft_wrap)


def show_plan(plan: Plan, *, err: bool) -> None:
    """Print a plan to standard output, or to standard error if `err` is true."""
    console = make_console(err=err)
    where = plan.base_url or "the embedded service"
    rows = f": {counted(plan.rows, 'row')} read, {plan.counts['pending']} to send to {where}"
    _print_styled(console, "bold", plan.manifest, rows)
    cap = f", budget {plan.options.budget} (hard cap)" if plan.options.budget is not None and not plan.is_free else ""
    console.print(Text.assemble("price: ", (plan.price, "bold"), cap))
    if (nothing_usable := no_usable_row(plan.reasons, plan.rows)) is not None:
        _print_styled(console, "yellow", "warning:", f" {nothing_usable}", soft_wrap=True)
    for sentence in plan.affordability_sentences:
        console.print(sentence)
    if plan.service.note is not None:
        _print_styled(console, "yellow", "note", f" {plan.service.note}", soft_wrap=True)
    if plan.options.prices is not None:
        console.print(describe_own_prices(plan.options.prices))
    for sentence in (*plan.savings_sentences, *([plan.frame_savings.sentence] if plan.frame_savings else [])):
        console.print(sentence, soft_wrap=True)
    _show_reasons(console, plan.reasons)
    if plan.videos is not None and plan.videos.sentence is not None:
        console.print(plan.videos.sentence)
    for sentence in plan.manifest_notes:
        _print_styled(console, "yellow", "  note", f" {sentence}", soft_wrap=True)
    for sentence in plan.advice:
        _print_styled(console, "dim", "  advice", f" {sentence}")
    for sentence in plan.needs_consent:
        _print_styled(console, "yellow", "  needs consent", f" {sentence}")


def show_check(report: CheckReport, *, err: bool) -> None:
    """Print a report on pre-checks to standard output, or to standard error if `err` is true."""
    console = make_console(err=err)
    _print_styled(console, "bold", report.manifest, f": {report.sentence}, {report.seconds:.1f} s", soft_wrap=True)
    if report.findings:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("finding", "severity", "rows", "for example"):
            table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
        for found in report.findings:
            example = f"{found.url}: {found.message}"
            table.add_row(found.check, found.severity, str(found.rows), example)
        console.print(table)
    _show_reasons(console, report.reasons)
    for sentence in report.notes:
        _print_styled(console, "yellow", "  note", f" {sentence}", soft_wrap=True)
    if report.out is not None:
        console.print(f"tables: {report.out / 'tables'}", soft_wrap=True)


def _show_reasons(console: Console, reasons: Sequence[ReasonCount]) -> None:
    if not reasons:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("status", "rows", "reason", "for example"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for reason in reasons[:_MAX_REASONS]:
        table.add_row(reason.status, str(reason.rows), reason.reason, reason.example)
    console.print(table)
    if len(reasons) > _MAX_REASONS:
        console.print(f"… and {len(reasons) - _MAX_REASONS} more reasons; all are in the assets table.")


def show_summary(run: Run, *, err: bool = False) -> RunSummary:
    """Print rows, credits, time, tables and next steps of a run, and return its row and credit counts.

    They go to standard output, or to standard error if `err` is true.
    """
    summary = run.summary()
    console = make_console(err=err)
    counts = ", ".join(f"{rows} {status}" for status, rows in summary.counts.items() if rows)
    more = "" if summary.planning_finished else "; planning is not finished"
    _print_styled(console, "bold", counted(summary.rows, "row"), f": {counts or 'none'}{more}")
    cap = f" of {summary.budget}" if summary.budget is not None else ""
    held = f", {summary.held} held" if summary.held else ""
    play = " of play money" if run.header.embedded and run.header.options.prices else ""
    balance = "" if summary.balance_after is None or play else f"; balance {summary.balance_after}"
    balance += "" if summary.balance_is_current or not balance else " (read before the last requests)"
    bound = "at most " if summary.unreported else ""  # answers name no charge
    paid = f"{bound}{summary.paid} credits{play} paid{cap}{held}{balance}"
    price = "free (local models)" if run.header.is_free else paid
    console.print(f"{price}; {summary.requests} requests, {summary.seconds:.1f} s")
    if summary.screen is not None:
        console.print(f"{summary.screen.outcome.sentence}. {summary.screen.sentence}", soft_wrap=True)
    _show_reasons(console, run.reasons())
    tables = run.folder / "tables"
    if tables.exists():
        console.print(f"tables: {tables}")
    if run.stopped_by is not None:
        hint = run.stopped_by.hint
        hint = "" if "lightmeter resume" in hint else f" {hint}"  # the next steps name this command with its options
        _print_styled(console, "yellow", "stopped:", f" {run.stopped_by}{hint}", soft_wrap=True)
    undelivered = read_run_header(run.folder).alert_notes
    if undelivered:
        more = f" ({len(undelivered) - 1} more: lightmeter statement {run.folder})" if len(undelivered) > 1 else ""
        _print_styled(console, "yellow", "warning:", f" {undelivered[0]}{more}", soft_wrap=True)
    for step in run.next_steps():
        _print_styled(console, "yellow", "next:", f" {step}", soft_wrap=True)
    sys.stderr.flush()
    return summary
