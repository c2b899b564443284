"""A plan is compared with an older one: rows, credits, prices and options; limits on its price end the command."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

import lightmeter as lm
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.planning.comparison.comparison_text import plan_as_markdown
from lightmeter.planning.comparison.max_price import PriceLimits, parse_percent
from lightmeter.planning.comparison.plan_comparison import read_snapshot
from lightmeter.planning.preflight import ServiceInfo
from lightmeter.pricing.estimate import CreditRange, FrameRange, run_price
from lightmeter.pricing.rates import default_rates, least_charged_milli
from lightmeter.testing import tiny_jpeg, tiny_video
from lightmeter.wire.response import Backends

OWN = {"backends": {"imagenet": {"prices": {"tags": 1500}}, "palette": {"prices": {"colors": 400}}}}


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


def write(folder, rows):
    path = folder / "m.csv"
    path.write_text(
        "url,id,team\n" + "".join(f"http://pictures.example/{url}.jpg,{id_},{team}\n" for url, id_, team in rows)
    )
    return path


BEFORE = [("a", "1", "red"), ("b", "2", "red"), ("c", "3", "blue"), ("d", "4", "")]
AFTER = [
    ("a", "1", "red"),
    ("x", "2", "red"),
    ("c", "3", "green"),
    ("e", "5", ""),
    ("f", "6", "blue"),
    ("g", "7", "red"),
]
OPTIONS = {"features": ["tags", "colors"], "backends": ["imagenet", "palette"], "precheck": False}


@pytest.fixture
async def plans(tmp_path):
    """An old plan, saved, and a new one of a changed manifest with other options and prices."""
    old = await lm.aio.plan(write(tmp_path, BEFORE), **OPTIONS)
    saved = old.save(tmp_path / "old.json")
    new = await lm.aio.plan(write(tmp_path, AFTER), **{**OPTIONS, "features": ["tags"], "prices": OWN, "max_frames": 5})
    return old, saved, new


async def test_rows_are_added_removed_and_changed(plans):
    """A row is changed if its URL or its columns differ; each change has a number of rows and their price."""
    old, saved, new = plans
    compared = new.compare(saved)
    assert {row.change: row.rows for row in compared.rows} == {"added": 3, "removed": 1, "changed": 2, "unchanged": 1}
    assert (compared.before, compared.after) == (old.credits, new.credits)
    prices = {row.change: (row.before, row.after) for row in compared.rows}
    assert prices["added"][0] == CreditRange(0, 0) == prices["removed"][1]
    assert prices["added"][1].high == new.credits.high // 2


async def test_a_plan_object_compares_as_its_file(plans):
    """Comparing with a plan gives what comparing with its file gives."""
    old, saved, new = plans
    assert new.compare(old) == new.compare(saved)
    assert old.compare(saved).options == ()
    assert {row.change: row.rows for row in old.compare(saved).rows if row.rows} == {"unchanged": 4}


async def test_prices_shares_and_options_are_compared(plans):
    """A changed price, a dropped feature and changed options are named, with both values."""
    _, saved, new = plans
    comparison_json = new.compare(saved).to_dict()
    assert [(one["backend"], one["feature"], one["after"]) for one in comparison_json["prices_millicredits"]] == [
        ("imagenet", "tags", 1500)
    ]
    shares = {(one["backend"], one["feature"]): one for one in comparison_json["shares"]}
    assert shares["palette", "colors"]["after"] is None
    assert (
        shares["imagenet", "tags"]["after"] == {"low": 9.0, "high": 27.0, "label": "bound"}
        or shares["imagenet", "tags"]["after"]["low"] == 9.0
    )
    changed = {one["name"]: (one["before"], one["after"]) for one in comparison_json["options"]}
    assert changed["max_frames"] == (3, 5)
    assert changed["features"] == (["tags", "colors"], ["tags"])


async def test_moved_files_are_the_same_rows(tmp_path):
    """Rows without ids of their own are the same rows in another folder, as in another checkout of a repository."""
    saved = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.jpg").write_bytes(tiny_jpeg(1))
        (folder / "m.csv").write_text("path\na.jpg\n")
        saved.append(await lm.aio.plan(folder / "m.csv", features=["tags"]))
    assert [row.rows for row in saved[1].compare(saved[0]).rows] == [0, 0, 0, 1]


async def test_frames_of_videos_belong_to_the_row_of_the_video(tmp_path):
    """With `video="frames"` the price by change and by column covers each frame that is sent, once."""
    tiny_video(tmp_path / "c.avi", frames=40, fps=10)
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "m.csv").write_text("path,team\na.jpg,red\nc.avi,blue\n")
    plan = await lm.aio.plan(tmp_path / "m.csv", features=["colors"], video="frames")
    unchanged = plan.compare(plan).rows[-1]
    assert (unchanged.rows, unchanged.after) == (2, plan.credits)
    assert plan.cost_by("team").total == plan.credits
    assert sum(cost.credits.high for cost in plan.cost_by("kind").values) == plan.credits.high


async def test_a_price_that_a_service_has_not_confirmed_is_an_estimate(tmp_path):
    """Prices of another service that named none are estimates; those of the embedded one are exact or bounds."""
    path = write(tmp_path, BEFORE)
    path.write_text(path.read_text().replace(",team", ",kind").replace(",red", ",image").replace(",blue", ",image"))
    own = await lm.aio.plan(path, **OPTIONS)
    foreign = await lm.aio.plan(
        path, features=["tags"], backends=["clarifai"], precheck=False, base_url="http://127.0.0.1:9"
    )
    compared = foreign.compare(own)
    assert (compared.before_label, compared.after_label) == ("exact", "estimate")
    assert "estimate" in str(compared)


async def test_a_file_that_is_no_plan_is_one_sentence(tmp_path):
    """A missing, foreign or edited file is refused with a sentence."""
    plan = await lm.aio.plan(write(tmp_path, BEFORE), **OPTIONS)
    with pytest.raises(SettingsError, match="cannot be read"):
        plan.compare(tmp_path / "gone.json")
    path = plan.save(tmp_path / "p.json")
    head = json.loads(path.read_text())
    for broken in ({**head, "credits": 1}, {**head, "counts": None}, {**head, "options": []}):
        path.write_text(json.dumps(broken))
        with pytest.raises(SettingsError, match="is not a plan file"):
            plan.compare(path)
    head["listed"][0]["status"] = "skipped"
    path.write_text(json.dumps(head))
    with pytest.raises(PlanChanged):
        plan.compare(path)


async def test_the_cost_by_a_column_has_the_top_values_and_a_rest(tmp_path):
    """The most expensive values are listed, the others are one line, and rows without a value have none."""
    rows = [(f"r{n}-{m}", f"{n}-{m}", f"team{n}" if n else "") for n in range(15) for m in range(n + 1)]
    plan = await lm.aio.plan(write(tmp_path, rows), **OPTIONS)
    by = plan.cost_by("team")
    assert [cost.value for cost in by.values[:2]] == ["team14", "team13"]
    assert (len(by.values), by.rest_values, by.rest.rows) == (10, 5, 15)
    assert sum(cost.rows for cost in by.values) + by.rest.rows == plan.rows
    assert sum(cost.credits.high for cost in by.values) + by.rest.credits.high == plan.credits.high == by.total.high
    assert "(5 other values)" in str(by)
    assert "<table>" in by._repr_html_()
    with pytest.raises(SettingsError, match="no column 'tema'"):
        plan.cost_by("tema")


async def test_markdown_has_totals_first_and_foreign_texts_do_nothing(tmp_path):
    """Markdown begins with the price; values of the manifest cannot be links, mentions, HTML or cells."""
    path = tmp_path / "m.csv"
    evil = "@all [x](http://evil.example) | <img src=x> `y` *b*"
    path.write_text(f'url,id,team\nhttp://pictures.example/a.jpg,1,"{evil}"\n')
    plan = await lm.aio.plan(path, **OPTIONS)
    text = plan_as_markdown(plan, plan.compare(plan), plan.cost_by("team"), ("Too much.",))
    assert text.startswith(f"### lightmeter plan: {plan.credits}")
    assert text.index("**Too expensive:** Too much.") < text.index("| rows |")
    assert not [word for word in ("@all", "](", "<img", "`", "*b*", "http:") if word in text]
    assert "&#64;all" in text


@pytest.mark.parametrize(("text", "percent"), [("10", 10), ("10%", 10), (" 2.5 % ", Fraction(5, 2)), ("0", 0)])
def test_a_percentage_has_a_sign_or_none(text, percent):
    """10 and 10% are the same percentage."""
    assert parse_percent(text) == percent


@pytest.mark.parametrize("text", ["", "ten", "-1", "1e3", "10%%", "nan", "1/2"])
def test_what_is_no_percentage_is_refused(text):
    """Other texts are refused with the two forms."""
    with pytest.raises(SettingsError, match="is no percentage"):
        parse_percent(text)


def test_limits_are_exact(plans):
    """A price at the limit is accepted, one above is not; an unbounded price exceeds every limit."""
    assert PriceLimits(10).exceeded(CreditRange(1, 10), None) == ()
    assert len(PriceLimits(9).exceeded(CreditRange(1, 10), None)) == 1
    assert len(PriceLimits(10**9).exceeded(CreditRange(1, None), None)) == 1
    old, _, new = plans
    compared = new.compare(old)
    rise = Fraction(100 * (compared.after.high - compared.before.high), compared.before.high)
    assert PriceLimits(None, rise).exceeded(compared.after, compared) == ()
    assert len(PriceLimits(None, rise - Fraction(1, 10**6)).exceeded(compared.after, compared)) == 1


async def test_a_service_that_states_its_rounding_has_an_exact_price(tmp_path):
    """The embedded service rounds up each picture, so that its price is exact; the upper end stays the same."""
    path = tmp_path / "m.csv"
    path.write_text("url,kind\n" + "".join(f"http://pictures.example/{n}.jpg,image\n" for n in range(25)))
    plan = await lm.aio.plan(path, features=["tags"], backends=["imagenet"], precheck=False, budget=10)
    assert (plan.credits, plan.rounding) == (CreditRange(25, 25), "image")
    assert (plan.budget_rows.low, plan.budget_rows.high) == (10, 10)
    assert plan.compare(plan).after_label == "exact"
    assert lm.load_plan(plan.save(tmp_path / "p.json")).credits == plan.credits


@pytest.mark.parametrize(
    ("stated", "low"), [({"rounding": "image"}, 4), ({"rounding": "request"}, 1), ({}, 1), ({"rounding": ["odd"]}, 1)]
)
def test_only_a_stated_rounding_of_pictures_raises_the_lower_price(stated, low):
    """A service without a valid `rounding` in its list of back ends keeps the range of prices."""
    listed = Backends.model_validate({"backends": [{"name": "b", "features": {"tags": 0.25}}], **stated})
    service = ServiceInfo.from_dict(ServiceInfo(1).with_backend_list(listed).to_dict())
    rounding = service.rates(default_rates()).rounding
    price = run_price(least_charged_milli(250, rounding), FrameRange(4, 4), 0, 0)
    assert price == CreditRange(low, 4)


async def test_the_costs_of_a_comparison_add_up(tmp_path):
    """The cost list ends with what is rounded up; the headline has both prices, and one line explains the words."""
    path = tmp_path / "m.csv"
    path.write_text("url,kind\n" + "".join(f"http://pictures.example/{n}.jpg,image\n" for n in range(25)))
    options = {"features": ["tags"], "backends": ["imagenet"], "precheck": False}
    old, new = (
        await lm.aio.plan(path, **options),
        await lm.aio.plan(path, **{**options, "prices": {"backends": OWN["backends"]}}),
    )
    text = plan_as_markdown(new, new.compare(old), None, ())
    assert text.startswith("### lightmeter plan: 50 credits, before 25 credits, +100 %\n")
    share = new.compare(old).shares[0]
    rest = (25 - share.before_milli[0] / 1000, 50 - share.after_milli[0] / 1000)
    assert f"<code>rounded up</code> | {rest[0]:g} | {rest[1]:g} |" in text
    assert "Exact: the price is known. Bound: " in text


def test_a_foreign_json_file_is_refused_without_names_of_exceptions(tmp_path):
    """A JSON file that is no plan is refused in a sentence."""
    path = tmp_path / "p.json"
    path.write_text("{}")
    with pytest.raises(SettingsError, match=r"p\.json is not a plan file\.$"):
        read_snapshot(path)


async def test_markdown_names_rows_not_sent_with_their_reasons(tmp_path):
    """Reasons have an example, paths stay readable, `www.` is no link, and advice is listed."""
    path = tmp_path / "m.csv"
    path.write_text('path,team\ngone/a.jpg,"data/m2.csv www.evil.example"\nb.jpg,"x\ny"\n')
    (tmp_path / "b.jpg").write_bytes(tiny_jpeg(1))
    plan = await lm.aio.plan(path, features=["tags"], backends=["imagenet"])
    text = plan_as_markdown(plan, plan.compare(plan), plan.cost_by("team"), ())
    assert f"| <code>{plan.reasons[0].status} " in text
    assert "gone/a.jpg" in text
    assert "data/m2.csv www&#46;evil.example" in text
    assert "- Advice: " in text
    assert "| to send | 1 | 1 |" in text
    assert "pending" not in text
    assert any(line.split()[:2] == ["x", "y"] for line in str(plan.cost_by("team")).splitlines())
