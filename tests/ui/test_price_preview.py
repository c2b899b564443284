"""Price quotes of planned rows."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightmeter.media.video.sampling import WHOLE_SECONDS_SQL
from lightmeter.options import make_options
from lightmeter.pricing.estimate import CreditRange, FrameRange, frame_range
from lightmeter.pricing.rates import default_rates
from lightmeter.ui.planner.price_preview import BudgetStatus, RowGroup, budget_status, frames_in, price_quote

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
def test_row_groups_have_the_frames_of_their_rows(items, interval_s, most):
    """Rows grouped by kind and whole seconds have exactly the frames of the single rows."""
    with apsw.Connection(":memory:") as db:
        rounded = f"SELECT {WHOLE_SECONDS_SQL} FROM (SELECT ? AS duration_s)"  # noqa: S608 (a constant expression)
        groups = [RowGroup(kind, next(db.execute(rounded, (length,)))[0], 1) for kind, length in items]
    one_by_one = sum((frame_range(*item, interval_s, most) for item in items), FrameRange(0, 0))
    assert frames_in(groups, interval_s, most) == one_by_one


@given(
    groups=st.lists(st.builds(RowGroup, st.sampled_from(["image", "video", None]), st.none(), st.integers(1, 10**6)))
)
def test_more_frames_never_cost_less(groups):
    """One more frame per video never lowers either end of the price."""
    few, more = (price_quote(RATES, make_options(max_frames=most), groups).credits for most in (3, 4))
    assert few.low <= more.low
    assert few.high <= more.high


@given(low=st.integers(0, 100), more=st.none() | st.integers(0, 100), budget=st.integers(0, 300))
def test_budget_status_follows_the_price_range(low, more, budget):
    """A budget suffices if the upper end fits, is reached if the lower end does not, and else may be reached."""
    cap = budget_status(CreditRange(low, None if more is None else low + more), budget)
    assert (cap is BudgetStatus.CLEAR) == (more is not None and low + more <= budget)
    assert (cap is BudgetStatus.REACHED) == (low > budget)


def test_an_interval_is_advised_for_long_videos():
    """The quote advises an interval that spreads the frames over a video, unless that changes nothing."""
    groups = [RowGroup("video", 600, 2, 1200.0), RowGroup("image", None, 5)]
    (sentence,) = [
        text for text in price_quote(RATES, make_options(), groups).advice if text.startswith("Capture interval")
    ]
    assert sentence.startswith("Capture interval 200 spreads 3 frames over 600 s")
    for options in (make_options(capture_interval=200), make_options(max_frames=0)):
        assert not any(
            sentence.startswith("Capture interval") for sentence in price_quote(RATES, options, groups).advice
        )


def test_no_budget_has_no_status():
    """Without a budget the status is NONE, whatever the price."""
    assert budget_status(CreditRange(5, None), None) is BudgetStatus.NONE


def test_price_is_the_sum_of_its_components():
    """The components name each back end and feature, and add up to the price of an image."""
    priced = price_quote(RATES, make_options(features=["tags", "colors"]), None)
    assert [(part.backend, part.feature, part.price_milli) for part in priced.parts] == [
        ("imagenet", "tags", 150),
        ("palette", "colors", 200),
    ]
    assert (priced.price_milli, priced.charged, priced.credits) == (350, 1, None)


def test_long_prompts_cost_more():
    """Additional blocks of a prompt are part of the price, as in the plan."""
    priced = price_quote(RATES, make_options(features="descriptions", backends="gemini", prompt="x" * 2501), None)
    assert priced.price_milli == 2000


@pytest.mark.parametrize(("budget", "fitting"), [(None, None), (7, 7), (0, 0)])
def test_affordable_frames(budget, fitting):
    """A budget certainly pays for as many images as fit if each is rounded up."""
    assert price_quote(RATES, make_options(budget=budget), None).affordable_frames == fitting
