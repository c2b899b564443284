"""Shows a plan as JSON values, as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lightmeter import __version__
from lightmeter.html_fragments import esc
from lightmeter.planning.plan_file import PLAN_VERSION
from lightmeter.planning.price_sources import describe_own_prices
from lightmeter.pricing.estimate import counted

if TYPE_CHECKING:
    from lightmeter.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Number of rows of a plan with the same status and reason; `example` is the URL and error of one of them."""

    status: str
    reason: str
    rows: int
    example: str


def no_usable_row(reasons: Sequence[ReasonCount], rows: int) -> str | None:
    """Return a sentence if each row of a manifest is a bad row, so that none can be analyzed; else None.

    `reasons` has the reasons of the `rows` rows of a plan or a run.
    """
    if not rows or sum(reason.rows for reason in reasons if reason.reason == "bad_row") < rows:
        return None
    return "no row can be analyzed: each row of the manifest is a bad row, as the reason says"


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain JSON values, without its rows, as `plan --json` prints it."""
    return {
        "plan_version": PLAN_VERSION,
        "lightmeter": __version__,
        "run_id": plan.run_id,
        "manifest": {"name": plan.manifest, "sha256": plan.manifest_sha256, "rows_read": plan.rows},
        "rows": plan.rows,
        "counts": plan.counts,
        "reasons": [asdict(reason) for reason in plan.reasons],
        "credits": {"low": plan.credits.low, "high": plan.credits.high, "budget": plan.options.budget},
        "saved": {
            "cache": asdict(plan.saved),
            "prechecks": asdict(plan.skipped_credits),
            "near_duplicates": asdict(plan.saved_by_near_duplicates),
            "screen": asdict(plan.saved_by_screen),
        },
        "frames": None if plan.frame_savings is None else plan.frame_savings.to_dict(),
        "screen": None if plan.screen is None else asdict(plan.screen),
        "price_per_image_millicredits": plan.price_per_image_milli,
        "rounding": plan.rounding,
        "retry_per_image_millicredits": plan.retry_per_image_milli,
        "balance": plan.balance,
        "affordable_rows": {
            "balance": None if plan.affordable_rows is None else asdict(plan.affordable_rows),
            "budget": None if plan.budget_rows is None else asdict(plan.budget_rows),
        },
        "sample": {
            "rule": plan.options.sample,
            "seed": plan.options.sample_seed,
            "strata": [stratum._asdict() for stratum in plan.budget_strata],
        },
        "base_url": plan.base_url,
        "service": plan.service.to_dict(),
        "options": plan.options.model_dump(mode="json"),
        "videos": None if plan.videos is None else plan.videos.to_dict(),
        "manifest_notes": list(plan.manifest_notes),
        "advice": list(plan.advice),
        "needs_consent": list(plan.needs_consent),
    }


def plan_as_text(plan: Plan) -> str:
    """Return the plan as text: which rows are sent and which are not, the price, and what needs the user's consent."""
    lines = [f"{plan.manifest}: {counted(plan.rows, 'row')} read, {plan.counts['pending']} to send, {plan.price}"]
    if (nothing_usable := no_usable_row(plan.reasons, plan.rows)) is not None:
        lines.append(f"  {nothing_usable}")
    lines += [f"  {sentence}" for sentence in plan.savings_sentences]
    lines += [f"  {reason.status:<10} {reason.rows:>8}  {reason.reason}: {reason.example}" for reason in plan.reasons]
    if plan.options.ask is not None:
        lines.append(
            f"  question {plan.options.ask.name}: an answer that is not valid is requested again once; "
            "the upper price includes that for every picture"
        )
    if plan.options.prices is not None:
        lines.append(f"  {describe_own_prices(plan.options.prices)}")
    lines += [f"  {sentence}" for sentence in plan.affordability_sentences]
    if plan.frame_savings is not None:
        lines.append(f"  {plan.frame_savings.sentence}")
    if plan.videos is not None and plan.videos.sentence is not None:
        lines.append(f"  {plan.videos.sentence}")
    if plan.service.note is not None:
        lines.append(f"  note: {plan.service.note}")
    lines += [f"  note: {sentence}" for sentence in plan.manifest_notes]
    lines += [f"  advice: {sentence}" for sentence in plan.advice]
    lines += [f"  needs your consent: {sentence}" for sentence in plan.needs_consent]
    return "\n".join(lines)


def plan_as_html(plan: Plan) -> str:
    """Return the plan as HTML, for notebooks."""
    first, *more = plan_as_text(plan).splitlines()
    lines = "".join(f"<li>{esc(line.strip())}</li>" for line in more)
    return f"<div><b>{esc(first)}</b>{_budget_bar(plan)}<ul>{lines}</ul></div>"


def _budget_bar(plan: Plan) -> str:
    """Return an HTML bar that shows how large a share of the rows to be sent the budget covers.

    Return an empty text if there is no budget or no row to send.
    """
    paid, rows = plan.budget_rows, plan.counts["pending"]
    if paid is None or not rows:
        return ""
    text = f"budget buys {paid} of {rows} rows"
    return f'<div><meter max="{rows}" value="{paid.low}" title="{text}" style="width:16em"></meter> {text}</div>'
