"""HTML of the notebook widget `BudgetPlanner`: price, plan, progress, and the outcome of a run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from lightmeter.api.run_result import RunSummary
from lightmeter.errors import Interrupted, LightmeterError
from lightmeter.html_fragments import esc, format_duration
from lightmeter.html_report.model import short_name
from lightmeter.planning.plan import Plan, ReasonCount
from lightmeter.planning.progress import Progress
from lightmeter.pricing.estimate import CreditRange, FrameRange
from lightmeter.pricing.rates import MILLICREDITS
from lightmeter.ui.price_preview import BudgetStatus, PriceQuote
from lightmeter.widgets.markup import message, status_mark, table

MAX_REASONS: Final = 12


class PlannerState(StrEnum):
    """What the notebook widget `BudgetPlanner` is doing."""

    IDLE = "idle"
    PLANNING = "planning"
    RUNNING = "running"
    STOPPING = "stopping"


def quote_html(quote: PriceQuote) -> str:
    """Return the price of a run as HTML: a range, each back end's price per image, whether the budget suffices."""
    if quote.credits is None or quote.frames is None:
        price = f"{_credits(quote.charged)} an image or frame"
        note = "Plan to learn how many there are."
    else:
        price = _range(quote.credits)
        note = f"{quote.rows:,} {_plural(quote.rows or 0, 'row')} to send: {_pictures(quote.frames)}, {_each(quote)}."
    components = " + ".join(f"{part.backend} {part.feature} {_amount(part.price_milli)}" for part in quote.parts)
    return (
        f'<div role="status"><div class="lm-note">Price</div><div class="lm-big">{esc(price)}</div><p>{esc(note)}</p>'
        f"{_scale(quote)}{_budget(quote)}"
        f'<p class="lm-note">An image or frame: {esc(components or "nothing is requested")} = '
        f"{_amount(quote.price_milli)} credits.</p></div>{_advice(quote.advice)}"
    )


def plan_html(plan: Plan, *, collapsed: bool = False) -> str:
    """Return a plan as an HTML block, which starts closed if `collapsed`: number of rows by status, with reasons."""
    counts = [(status, rows) for status, rows in plan.counts.items() if rows]
    words = {"pending": "to send", "ok": "answered by earlier runs"}
    body = "".join(f"<li>{status_mark(words.get(status, status))}: {rows:,}</li>" for status, rows in counts)
    body += "".join(f"<li>{esc(sentence)}</li>" for sentence in plan.savings_sentences)
    consent = "".join(message(sentence) for sentence in plan.needs_consent)
    title = f"Plan of {esc(short_name(plan.manifest))}: {plan.rows:,} {_plural(plan.rows, 'row')}"
    return (
        f'<details{"" if collapsed else " open"}><summary title="{esc(plan.manifest)}">{title}</summary>'
        f'<ul style="list-style:none;padding:0">{body}</ul>{_reasons(plan.reasons)}</details>{consent}'
    )


def question_html(credits_: CreditRange, budget: int | None, max_credits: int) -> str:
    """Return, as HTML, what the user confirms before a run: its price, and the most credits that it can spend.

    Args:
        credits_: The price range.
        budget: The budget in credits, or None.
        max_credits: Most credits that the run can spend.
    """
    cap = f"the budget of {budget:,}" if budget is not None else "no budget is set, so its upper end is the cap"
    return message(f"Price: {_range(credits_)}; {cap}. No more than {_credits(max_credits)} will be spent.")


def progress_html(progress: Progress) -> str:
    """Return the progress of a plan or run as one line of HTML."""
    if progress.phase == "planning":
        return f"<div>planning · {progress.rows:,} rows read and checked · {progress.rate:.0f}/s</div>"
    facts = [f"{progress.finished:,} of {progress.rows:,} rows"]
    if progress.rate:
        facts.append(f"{progress.rate:.1f}/s")
    if progress.eta_s is not None and progress.phase == "running":
        facts.append(f"about {format_duration(progress.eta_s)} left")
    cap = "" if progress.budget is None else f" of {progress.budget:,}"
    facts.append(f"{progress.paid:,} credits paid{cap}")
    facts.append(f"{progress.held:,} held")
    return f"<div><b>{esc(progress.phase)}</b> · {' · '.join(facts)}</div>"


def finished_fraction(progress: Progress) -> float:
    """Return the fraction of finished rows, 0 to 1; 0 while planning, when the number of rows is unknown."""
    return progress.finished / progress.rows if progress.phase != "planning" and progress.rows else 0.0


def summary_html(summary: RunSummary, reasons: Sequence[ReasonCount], stopped_by: LightmeterError | None) -> str:
    """Return the outcome of a run as HTML: rows by status, credits paid, and the path of the tables.

    Args:
        summary: Rows by status, credits, number of requests and duration of the run.
        reasons: Why rows have another status than `ok`.
        stopped_by: The error that ended the run early, or None.
    """
    counts = ", ".join(f"{rows:,} {_words(status)}" for status, rows in summary.counts.items() if rows)
    cap = "" if summary.budget is None else f" of a budget of {summary.budget:,}"
    held = f", {summary.held:,} held for what is in doubt" if summary.held else ""
    if stopped_by is None:
        is_clean = not any(summary.counts.get(status) for status in ("failed", "in_doubt"))
        outcome = message(f"Done: {counts or 'no rows'}.", "good" if is_clean else "")
    else:
        first = "raise the budget, then " if summary.counts.get("over_budget") else ""
        outcome = message(f"{stopped_by} {counts}.", hint=f"Nothing is lost: {first}Run continues from here.")
    return (
        f"{outcome}<p>{summary.paid:,} credits paid{cap}{held}; {summary.requests:,} "
        f"{_plural(summary.requests, 'request')} in {format_duration(summary.seconds)}.</p>"
        f"<p>Tables: <code>{esc(summary.out / 'tables')}</code></p>{_reasons(reasons)}"
    )


def error_html(error: BaseException) -> str:
    """Return an error's message and, if it has one, its hint, as HTML."""
    name = "" if isinstance(error, LightmeterError) else f"{type(error).__name__}: "
    mood = "" if isinstance(error, Interrupted) else "error"
    return message(f"{name}{error}", mood, getattr(error, "hint", ""))


def _reasons(reasons: Sequence[ReasonCount]) -> str:
    if not reasons:
        return ""
    rows = [(_words(group.status), group.rows, _words(group.reason), group.example) for group in reasons[:MAX_REASONS]]
    more = len(reasons) - MAX_REASONS
    note = f'<p class="lm-note">… and {more} more reasons; the assets table has all.</p>' if more > 0 else ""
    return table("Why", ("status", "rows", "reason", "for example"), rows) + note


def _advice(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{esc(sentence)}</li>" for sentence in sentences)
    title = f"{len(sentences)} {_plural(len(sentences), 'thing')} worth knowing"
    return f"<details open><summary>{title}</summary><ul>{items}</ul></details>"


def _budget(quote: PriceQuote) -> str:
    budget = quote.budget
    coverage = (
        f"It is sure to pay for {quote.affordable_frames:,} images and frames."
        if quote.affordable_frames is not None
        else ""
    )
    match quote.budget_status:
        case BudgetStatus.CLEAR:
            return message(f"The budget of {budget:,} will not be reached.", "good")
        case BudgetStatus.MAYBE:
            return message(f"The budget of {budget:,} may be reached.", hint=coverage)
        case BudgetStatus.REACHED:
            return message(f"The budget of {budget:,} will be reached before the last row.", "error", hint=coverage)
        case _:
            return "" if budget is not None else "<p>No budget: the run may spend without a limit.</p>"


def _scale(quote: PriceQuote) -> str:
    """Return a small HTML bar chart of price range and budget; empty if the budget or the upper price is unknown."""
    if quote.credits is None or quote.credits.high is None or quote.budget is None:
        return ""
    end = max(quote.credits.high, quote.budget, 1) * 1.04
    low, width = quote.credits.low / end, max(quote.credits.high - quote.credits.low, end * 0.01) / end
    return (
        f'<div class="lm-scale" aria-hidden="true"><i style="left:0;width:{low:.1%};background:#3f7fd9"></i>'
        f'<i style="left:{low:.1%};width:{width:.1%};background:#3f7fd988"></i>'
        f'<i style="left:{quote.budget / end:.1%};width:3px;background:#d33f3f"></i></div>'
        f'<p class="lm-note">blue: low to high · red mark: budget</p>'
    )


def _pictures(frames: FrameRange) -> str:
    if frames.high is None:
        return f"at least {frames.low:,} images and frames"
    if frames.low == frames.high:
        return "1 image or frame" if frames.low == 1 else f"{frames.low:,} images and frames"
    return f"{frames.low:,} to {frames.high:,} images and frames"


def _each(quote: PriceQuote) -> str:
    exact = _amount(quote.price_milli)
    return f"{exact} each, charged as up to {quote.charged}" if quote.price_milli % MILLICREDITS else f"{exact} each"


def _range(credits_: CreditRange) -> str:
    if credits_.high is None:
        return f"at least {_credits(credits_.low)}"
    if credits_.low == credits_.high:
        return _credits(credits_.low)
    return f"{credits_.low:,} to {_credits(credits_.high)}"


def _credits(count: int) -> str:
    return f"{count:,} {_plural(count, 'credit')}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


def _amount(millicredits: int) -> str:
    """Return millicredits as an exact number of credits: 1150 is `1.15`."""
    whole, rest = divmod(millicredits, MILLICREDITS)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
