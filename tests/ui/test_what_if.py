"""Prices of planned rows for other options equal those of a new plan with these options."""

from __future__ import annotations

import shutil

import pytest

import lightmeter as lm
from lightmeter.options import make_options
from lightmeter.planning.price_sources import rates_for
from lightmeter.settings import read_settings
from lightmeter.testing import tiny_jpeg, tiny_video
from lightmeter.ui.planner.planner import PlannerView
from lightmeter.ui.planner.row_counts import MAX_VALUES, PlannedRows, column_choices
from lightmeter.ui.planner.what_if import PlannedPrices
from tests.ui.test_planner import pictures

OPTIONS = {"features": "nsfw", "backends": "opennsfw", "max_frames": 3}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """Six pictures of which two are copies, and two videos of which one is a copy, with columns."""
    folder = tmp_path_factory.mktemp("media")
    for seed in range(4):
        (folder / f"{seed}.jpg").write_bytes(tiny_jpeg(seed))
    tiny_video(folder / "long.avi", frames=80)
    for source, copy in (("0.jpg", "4.jpg"), ("0.jpg", "5.jpg"), ("long.avi", "copy.avi")):
        shutil.copy(folder / source, folder / copy)
    names = [*(f"{seed}.jpg" for seed in range(6)), "long.avi", "copy.avi"]
    path = folder / "media.csv"
    path.write_text(
        "path,shop\n" + "".join(f"{name},{'xy'[n % 2]}\n" for n, name in enumerate(names)), encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module")
def plans(manifest):
    """A function that plans the manifest with the given options, each plan once."""
    plans_by_options = {}

    def plan(**options):
        key = tuple(sorted(options.items()))
        if key not in plans_by_options:
            plans_by_options[key] = lm.plan(manifest, **{**OPTIONS, **options})
        return plans_by_options[key]

    return plan


def price(plan, **changes):
    """Return the price of a plan's rows for other options."""
    options = make_options(**{**plan.options.model_dump(), **changes})
    rates = rates_for(plan.options, read_settings())
    return PlannedPrices(plan, PlannedRows(plan), rates).price_json(options, options)


def amount(credits_):
    return credits_.low, credits_.high


@pytest.mark.parametrize("changes", [{}, {"max_frames": 1}, {"max_frames": 0}, {"capture_interval": 4}])
def test_frames_are_priced_as_a_plan_does(changes, plans):
    """Other frame limits and intervals cost what a plan with them costs."""
    credits_ = price(plans(), **changes)["credits"]
    assert (credits_["low"], credits_["high"]) == amount(plans(**changes).credits)
    assert credits_["label"] == "exact"


@pytest.mark.parametrize("planned", ["off", "exact", "near"])
@pytest.mark.parametrize("wanted", ["off", "exact", "near"])
def test_duplicates_are_priced_as_a_plan_does(planned, wanted, plans):
    """The price by another rule for duplicates holds that of a plan with the rule; guesses are labelled."""
    price_json = price(plans(duplicates=planned), duplicates=wanted)
    exact = plans(duplicates=wanted)
    is_guess = price_json["rows"]["label"] == "estimate"
    assert is_guess == ((planned, wanted) in {("off", "exact"), ("off", "near"), ("exact", "near")})
    if not is_guess:
        assert price_json["rows"]["low"] <= exact.counts["pending"] <= price_json["rows"]["high"]
        assert price_json["credits"]["low"] <= exact.credits.low
        assert price_json["credits"]["high"] >= exact.credits.high
    if planned == "off" and wanted == "exact":
        assert price_json["rows"]["low"] == exact.counts["pending"]


@pytest.mark.parametrize("budget", [0, 1, 3, 4, 6])
def test_budgets_pay_for_the_rows_of_the_plan(budget, plans):
    """The number of rows that a budget pays for is that of the plan; another order of rows makes it a guess."""
    affordable = price(plans(), budget=budget)["affordable"]
    rows = plans(budget=budget).budget_rows
    assert (affordable["low"], affordable["high"]) == (rows.low, rows.high)
    if rows.high < plans().counts["pending"]:
        assert price(plans(), budget=budget, sample="random")["affordable"]["label"] == "estimate"


@pytest.mark.parametrize(("budget", "low", "high"), [(1, 1, 1), (5, 5, 5), (8, 7, 8)])
def test_a_budget_pays_for_a_row_each_if_all_rows_cost_one_credit(tmp_path, budget, low, high):
    """How many rows are sent is a range if near-duplicates may be sent too; the price of a row is not."""
    for seed in range(4):
        (tmp_path / f"{seed}.jpg").write_bytes(tiny_jpeg(seed))
    for wider in range(1, 7):
        (tmp_path / f"like-0-{wider}.jpg").write_bytes(tiny_jpeg(0, width=64 + wider, height=48))
    plan = lm.plan(str(tmp_path / "*.jpg"), **OPTIONS, duplicates="near")
    price_json = price(plan, duplicates="exact", budget=budget)
    assert (price_json["rows"]["low"], price_json["rows"]["high"]) == (7, 10)
    assert price_json["affordable"] == {"low": low, "high": high, "label": "estimate"}


def test_alternatives_name_each_value_once(plans):
    """Each option is priced with several values, of which one is the chosen one."""
    alternatives = price(plans(), max_frames=7)["alternatives"]
    assert [each["value"] for each in alternatives if each["option"] == "max_frames"] == [7, 1, 3, 5, 10, 0]
    assert [each["value"] for each in alternatives if each["is_current"]] == [7, 1, "exact"]


def test_values_of_a_column_share_the_rows(plans):
    """The rows of all values of a column are the rows of the plan; a column with too many values is no choice."""
    plan = plans()
    assert column_choices(plan) == ["kind", "shop"]
    rows = PlannedRows(plan)
    parts = rows.by_value("shop")
    assert {value for value, _ in parts} == {"x", "y"}
    assert sum(int(part.to_send.sum()) for _, part in parts) == plan.counts["pending"]
    assert [(value, int(part.to_send.sum())) for value, part in rows.by_value("kind")] == [("image", 4), ("video", 1)]


def test_rare_values_are_put_together(tmp_path):
    """A column with more values than are shown ends with a line for all others."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    many = MAX_VALUES + 5
    (tmp_path / "m.csv").write_text("path,n\n" + "".join(f"a.jpg,{n}\n" for n in range(many)), encoding="utf-8")
    plan = lm.plan(tmp_path / "m.csv", **OPTIONS, duplicates="off")
    assert column_choices(plan) == ["kind"]
    parts = PlannedRows(plan).by_value("n")
    assert (len(parts), parts[-1][0]) == (MAX_VALUES + 1, "… 5 other values")
    assert sum(int(part.to_send.sum()) for _, part in parts) == many


def test_other_budgets_are_priced(tmp_path):
    """Half and double the budget, and the upper end of the price, say how many rows they pay for."""
    planner = PlannerView(pictures(tmp_path, 8), out=tmp_path / "out", features="colors", budget=4, precheck=False)
    planner.plan().result()
    assert [each["budget"] for each in planner.price["budgets"]] == [2, 4, 8]
    assert [each["rows"]["low"] for each in planner.price["budgets"]] == [2, 4, 8]
    assert [each["is_current"] for each in planner.price["budgets"]] == [False, True, False]
    planner.set_form(budget=None)
    assert [each["budget"] for each in planner.price["budgets"]] == [4, 8]
    planner.set_form(budget=100)
    assert [each["budget"] for each in planner.price["budgets"]] == [4, 8, 100]
