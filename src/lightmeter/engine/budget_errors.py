"""Errors that say which limit on credits left rows unsent, and what the user can do. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lightmeter.errors import BudgetReached
from lightmeter.html_fragments import counted


def key_budget_reached(rows: int, credits_: int, period: str) -> BudgetReached:
    """Return the error for rows that the budget of the API key has no room for.

    Args:
        rows: Number of these rows.
        credits_: The budget of the key.
        period: Length of the budget's period: day, week or month.
    """
    budget = f"The budget of the key, {credits_} credits a {period},"
    return BudgetReached(
        f"{budget} is too small for {counted(rows, 'row', 'rows')}.",
        hint="Continue later, or raise LIGHTMETER_KEY_BUDGET: lightmeter resume DIR",
    )


def run_budget_reached(rows: int, credits_: int | None) -> BudgetReached:
    """Return the error for rows that the budget of the run, `credits_`, has no room for; `rows` is their number."""
    return BudgetReached(
        f"The budget of {credits_} credits is too small for {counted(rows, 'row', 'rows')}.",
        hint="Continue with a higher limit: lightmeter resume DIR --budget CREDITS",
    )


def caps_reached(rows: Mapping[str, int]) -> BudgetReached:
    """Return the error for rows that no budget of any size lets the run send.

    `rows` is reason → number of rows. The reason is `at_risk` for rows that alone may cost more than `--max-at-risk`,
    and `no_bound` for rows without a highest price.
    """
    texts, hints = [], []
    if at_risk := rows.get("at_risk", 0):
        texts.append(f"{counted(at_risk, 'row', 'rows')} may cost more than --max-at-risk allows for one.")
        hints.append("Continue with a higher limit: lightmeter resume DIR --max-at-risk CREDITS")
    if no_bound := rows.get("no_bound", 0):
        texts.append(f"{counted(no_bound, 'row has', 'rows have')} no upper price, so no budget can hold them.")
        run = "lightmeter run MANIFEST --out OTHER_DIR --max-frames 3 --budget CREDITS"
        hints.append(f"Analyze them with a limit on frames, in another folder: {run}")
    return BudgetReached(" ".join(texts), hint=" ".join(hints))
