"""What the planner's page is told of progress and outcome, and the forecast of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.api.run_result import RunSummary
from lightmeter.errors import BudgetReached, Interrupted, ManifestError
from lightmeter.journal.queries.charges import PaidFrames
from lightmeter.planning.progress import Progress
from lightmeter.pricing.estimate import CreditRange, FrameRange
from lightmeter.ui.planner.burn_down import MAX_POINTS, BurnDown
from lightmeter.ui.planner.planner_facts import (
    error_json,
    finished_fraction,
    progress_json,
    remaining_json,
    summary_json,
)


def summary(counts: dict[str, int], **more: int) -> RunSummary:
    """Return the summary of a run with these rows."""
    fields = {"paid": 1, "held": 0, "budget": 1, "balance_before": 9, "balance_after": 8} | more
    return RunSummary(sum(counts.values()), counts, requests=1, seconds=2.0, out=Path("out"), **fields)


def test_progress_tells_rows_credits_and_doubt():
    """The progress holds finished rows, credits paid and held, and the rows in doubt apart."""
    progress = progress_json(Progress("running", 10, {"pending": 4, "in_doubt": 1}, paid=3, held=2, budget=20))
    assert (progress["finished"], progress["fraction"], progress["in_doubt"]) == (5, 0.5, 1)
    assert (progress["paid"], progress["held"], progress["budget"]) == (3, 2, 20)
    assert finished_fraction(Progress("planning", 10, {})) == 0


def test_an_early_end_tells_how_to_continue():
    """A run that the budget stopped tells the reason and how to continue."""
    summary_fields = summary_json(summary({"ok": 1, "over_budget": 2}), BudgetReached("The budget is used up."))
    assert summary_fields["message"] == "The budget is used up. 1 ok, 2 over budget."
    assert summary_fields["hint"].startswith("Nothing is lost: raise the budget, then plan")
    assert summary_fields["mood"] == ""


@pytest.mark.parametrize(("counts", "mood"), [({"ok": 2}, "good"), ({"ok": 1, "in_doubt": 1}, "")])
def test_only_a_clean_run_is_good(counts, mood):
    """A run is called good only if no row failed or is in doubt."""
    assert summary_json(summary(counts), None)["mood"] == mood


def test_the_remaining_rows_are_priced_as_observed():
    """The rows that are left cost the observed price of a picture, as an estimate."""
    observed = PaidFrames(frames_low=10, frames_high=10, unbounded=0, paid=15, incomplete=0)
    remaining = remaining_json(summary({"ok": 10, "pending": 4}), observed, FrameRange(4, 8))
    assert remaining == {"rows": 4, "each": 1.5, "credits": {"low": 6, "high": 12, "label": "estimate"}}
    assert remaining_json(summary({"ok": 10}), observed, FrameRange(0, 0)) is None
    assert remaining_json(summary({"pending": 4}), PaidFrames(0, 0, 0, 0, 0), FrameRange(4, 4)) is None


def test_errors_tell_their_hint():
    """An error has its message and hint; a stop by the user is no error."""
    assert error_json(ManifestError("No rows.", hint="Add some.")) == {
        "mood": "error",
        "message": "No rows.",
        "hint": "Add some.",
    }
    assert error_json(Interrupted("Stopped."))["mood"] == ""
    assert error_json(ZeroDivisionError("x"))["message"] == "ZeroDivisionError: x"


def running(seconds: float, left: int, paid: int) -> Progress:
    return Progress("running", 100, {"pending": left, "ok": 100 - left}, paid=paid, budget=500, seconds=seconds)


def test_the_end_is_forecast_as_a_range():
    """A run that became slower ends between the time at the fastest and at the slowest of its recent rates."""
    burn_down = BurnDown(500, CreditRange(100, 300), 100)
    assert burn_down.eta_s() is None
    for seconds, left in ((0, 100), (30, 60), (60, 30), (65, 28), (70, 26)):
        burn_down.add(running(seconds, left, 2 * (100 - left)))
    fast, slow = burn_down.eta_s()
    assert fast == pytest.approx(26 / (74 / 70), rel=0.2)
    assert slow == pytest.approx(26 / 0.4)
    assert burn_down.to_json()["rate"] == pytest.approx(0.4)
    assert burn_down.remaining_credits() == CreditRange(26, 78)


def test_the_forecast_of_the_end_respects_the_cap():
    """A run whose cap pays for half of the pending rows ends in half the time."""
    burn_down = BurnDown(100, CreditRange(100, 300), 100)
    for seconds, left in ((0, 100), (4, 60), (8, 20)):
        burn_down.add(running(seconds, left, (100 - left) * 9 // 8))
    assert burn_down.eta_s() == pytest.approx((80 * 10 / 90 / 10, 80 * 10 / 90 / 10))


def test_the_recent_rate_is_that_of_the_last_seconds():
    """While the progress of the last ten seconds is not known, no rate of a longer time is shown in its place."""
    burn_down = BurnDown(500, CreditRange(100, 300), 100)
    burn_down.add(running(0, 100, 0))
    burn_down.add(running(30, 40, 60))
    assert burn_down.to_json()["rate"] is None
    assert burn_down.eta_s() == (20, 20)
    burn_down.add(running(35, 30, 70))
    assert burn_down.to_json()["rate"] == 2


@given(price=st.integers(0, 1000), cap=st.integers(0, 1000), paid=st.integers(0, 1000), left=st.integers(0, 100))
def test_the_forecast_stays_within_the_cap(price, cap, paid, left):
    """The forecast never spends more than the cap leaves, even if the price has no upper end."""
    burn_down = BurnDown(cap, CreditRange(price, None), 100)
    burn_down.add(running(1, left, paid))
    remaining = burn_down.remaining_credits()
    assert 0 <= remaining.low <= remaining.high <= max(0, cap - paid)


def test_long_runs_keep_few_points():
    """The chart of a long run keeps its first and last point and a bounded number between them."""
    burn_down = BurnDown(500, CreditRange(1, 1), 100)
    for second in range(10_000):
        burn_down.add(running(second, 100, second))
    points = burn_down.to_json()["points"]
    assert len(points) <= MAX_POINTS
    assert (points[0][0], points[-1][0]) == (0, 9999)
