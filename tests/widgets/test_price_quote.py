"""Prices of planned rows, without the rows."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightmeter.media.sampling import WHOLE_SECONDS_SQL
from lightmeter.options import make_options
from lightmeter.planning.price_table import rates_for
from lightmeter.pricing.estimate import CreditRange, FrameRange, frame_range
from lightmeter.pricing.rates import default_rates
from lightmeter.settings import read_settings
from lightmeter.widgets.price_quote import BudgetStatus, RowGroup, budget_status, frames_in, plan_totals, price_quote

RATES = default_rates().with_defaults(("imagenet", "opennsfw", "palette"))
ITEMS = st.lists(
    st.tuples(st.sampled_from(["image", "video", None]), st.none() | st.floats(0, 10_000)), min_size=1, max_size=20
)


@given(items=ITEMS, interval_s=st.integers(1, 90), most=st.integers(0, 50))
@example(
    items=[("video", 0.0), ("video", 5e-324), ("video", 2.3), ("video", 4.0000001), (None, 3.8e17)],
    interval_s=1,
    most=9,
)
def test_groups_are_charged_as_their_rows_are(items, interval_s, most):
    """Rows grouped by kind and whole seconds come to exactly the frames they come to one by one."""
    with apsw.Connection(":memory:") as db:
        rounded = f"SELECT {WHOLE_SECONDS_SQL} FROM (SELECT ? AS duration_s)"  # noqa: S608 (a constant expression)
        groups = [RowGroup(kind, next(db.execute(rounded, (length,)))[0], 1) for kind, length in items]
    one_by_one = sum((frame_range(*item, interval_s, most) for item in items), FrameRange(0, 0))
    assert frames_in(groups, interval_s, most) == one_by_one


@given(
    groups=st.lists(st.builds(RowGroup, st.sampled_from(["image", "video", None]), st.none(), st.integers(1, 10**6)))
)
def test_more_frames_never_cost_less(groups):
    """Allowing another frame never lowers either end of the price."""
    few, more = (price_quote(RATES, make_options(max_frames=most), groups).credits for most in (3, 4))
    assert few.low <= more.low
    assert few.high <= more.high


@given(low=st.integers(0, 100), more=st.none() | st.integers(0, 100), budget=st.integers(0, 300))
def test_cap_is_told_from_the_ends_of_the_range(low, more, budget):
    """A cap is clear when the upper end fits, reached when the lower does not, and in between it may be reached."""
    cap = budget_status(CreditRange(low, None if more is None else low + more), budget)
    assert (cap is BudgetStatus.CLEAR) == (more is not None and low + more <= budget)
    assert (cap is BudgetStatus.REACHED) == (low > budget)


def test_an_interval_is_advised_where_videos_are_cut_off():
    """The planner's advice is the plan's: an interval that spreads the frames, while there is something to gain."""
    groups = [RowGroup("video", 600, 2), RowGroup("image", None, 5)]
    (sentence,) = [
        told for told in price_quote(RATES, make_options(), groups).advice if told.startswith("Capture interval")
    ]
    assert sentence.startswith("Capture interval 200 spreads 3 frames over 600 s")
    for options in (make_options(capture_interval=200), make_options(max_frames=0)):
        assert not any(told.startswith("Capture interval") for told in price_quote(RATES, options, groups).advice)


def test_without_a_budget_there_is_no_cap():
    """No budget is no cap, however much it costs."""
    assert budget_status(CreditRange(5, None), None) is BudgetStatus.NONE


def test_price_is_made_of_its_parts():
    """The parts name each back end and feature asked for, and add up to the price of an image."""
    priced = price_quote(RATES, make_options(features=["tags", "colors"]), None)
    assert [(part.backend, part.feature, part.price_milli) for part in priced.parts] == [
        ("imagenet", "tags", 150),
        ("palette", "colors", 200),
    ]
    assert (priced.price_milli, priced.charged, priced.credits) == (350, 1, None)


def test_long_prompts_cost_what_the_plan_says():
    """Further blocks of a prompt are in the price here as in the plan."""
    priced = price_quote(RATES, make_options(features="descriptions", backends="gemini", prompt="x" * 2501), None)
    assert priced.price_milli == 2000


@pytest.mark.parametrize(("budget", "fitting"), [(None, None), (7, 7), (0, 0)])
def test_what_a_budget_is_sure_to_pay_for(budget, fitting):
    """A budget is sure to pay for as many images as fit when each is rounded up."""
    assert price_quote(RATES, make_options(budget=budget), None).affordable_frames == fitting


def test_quote_of_a_plan_is_the_plans_own_price(planner):
    """With the options it was planned with, the quote is what the plan says, to the credit."""
    plan = planner.planned
    priced = price_quote(
        rates_for(plan.options, read_settings()), plan.options, plan_totals(plan).billable_groups(options_changed=False)
    )
    assert (priced.credits, priced.rows) == (plan.credits, plan.counts["pending"])
