"""The planner in a real browser, with a real service that counts its requests."""

from __future__ import annotations

import re
from operator import attrgetter

import pytest
from playwright.sync_api import Locator, Page, expect

from lightmeter.testing import tiny_jpeg
from lightmeter.ui.planner.planner import PlannerView
from lightmeter.ui.planner.planner_facts import PlannerState
from lightmeter.ui.web.web_server import WebView
from tests.sweeps import sweep
from tests.ui.kernels import wait_until
from tests.ui.slow_service import charged_requests
from tests.ui.test_planner import pictures


@pytest.fixture
def planner(tmp_path, slow_service, request) -> PlannerView:
    """A planner of 40 pictures, or as many as a test asks for, with one request at a time at the slow service."""
    return PlannerView(
        pictures(tmp_path, getattr(request, "param", 40)),
        out=tmp_path / "out",
        base_url=slow_service.base_url,
        backends="palette",
        features="colors",
        budget=500,
        max_concurrency=1,
        upload="always",
    )


@pytest.fixture
def opened(planner, serve_views, page) -> Page:
    """The page of that planner."""
    page.goto(serve_views({"planner": WebView("Planner", lambda: planner)}))
    expect(button(page, "Plan")).to_be_enabled()
    return page


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def spend_button(page: Page) -> Locator:
    return page.get_by_role("button", name=re.compile("^Spend up to"))


@pytest.mark.parametrize("planner", [8], indirect=True)
def test_two_steps_spend(opened, planner, slow_service):
    """The page spends only after Plan and a click on the button that names the plan's cap; then the run finishes."""
    assert spend_button(opened).count() == 0
    button(opened, "Plan").click()
    expect(spend_button(opened)).to_have_text("Spend up to 8 credits ($0.08); balance 99,321", timeout=60_000)
    assert (planner.planned.credits.high, charged_requests(slow_service)) == (8, 0)
    spend_button(opened).click()
    expect(opened.locator(".lm-burn")).to_be_visible(timeout=60_000)
    expect(opened.get_by_text("Done: 8 ok.")).to_be_visible(timeout=120_000)
    expect(opened.get_by_text(re.compile(r"^8 credits paid of a budget of 8"))).to_be_visible()
    assert spend_button(opened).count() == 0
    assert charged_requests(slow_service) == 8


def test_price_follows_the_form(opened, slow_service):
    """Ticks, alternatives and columns change the price at once; each change withdraws the button that spends."""
    button(opened, "Plan").click()
    expect(spend_button(opened)).to_be_visible(timeout=60_000)
    expect(opened.locator(".lm-big")).to_have_text("40 credits exact ")
    expect(opened.get_by_text("budget 500 credits: enough for all 40 rows")).to_be_visible()
    opened.get_by_label("Budget in credits").fill("5")
    expect(opened.get_by_text("Last plan, with other options, of pictures.csv: 40 rows")).to_be_visible()
    expect(opened.get_by_text("enough for all")).to_have_count(0)
    expect(opened.get_by_text("The budget of 5 will be reached")).to_be_visible()
    expect(opened.get_by_text("It pays for 5 of 40 rows")).to_be_visible()
    expect(spend_button(opened)).to_have_count(0)
    opened.get_by_label("Cap what is spent").uncheck()
    expect(opened.get_by_text("No budget")).to_be_visible()
    button(opened, "Duplicates near: look-alikes share too").click()
    expect(opened.locator(".lm-big .lm-estimate")).to_be_visible()
    expect(opened.get_by_label("Duplicates", exact=True)).to_have_value("near")
    opened.get_by_label("Price by column").select_option("half")
    expect(opened.get_by_role("region", name="Price by half").locator("tbody tr")).to_have_count(2)
    opened.get_by_label("colors").uncheck()
    expect(opened.get_by_text("Tick at least one feature.")).to_be_visible()
    assert charged_requests(slow_service) == 0


@pytest.mark.parametrize(
    ("label", "text", "allowed"),
    [
        ("Budget in credits", "", "A whole number, 0 or more."),
        sweep("Budget in credits", "-5", "A whole number, 0 or more."),
        sweep("Frames per video, 0: all", "1.5", "A whole number, 0 or more."),
        ("Seconds between frames", "0", "A whole number, 1 or more."),
        ("Least tag score", "2", "A number, 0 to 1."),
    ],
)
def test_a_value_that_is_not_allowed_is_explained(opened, planner, label, text, allowed):
    """The field says what is allowed, and no price of other options stands beside it until it is corrected."""
    field = opened.get_by_label(label)
    before = field.input_value()
    field.fill(text)
    expect(opened.get_by_text(allowed).and_(opened.locator(":visible"))).to_be_visible()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(opened.get_by_text("correct it to see the price")).to_be_visible()
    expect(opened.locator(".lm-big")).to_have_count(0)
    expect(button(opened, "Plan")).to_be_disabled()
    opened.get_by_label("Duplicates", exact=True).select_option("near")
    opened.wait_for_timeout(800)  # the page takes the values of the view-model over again
    expect(field).to_have_value(text)
    field.fill(before)
    expect(opened.locator(".lm-big")).to_be_visible()
    expect(opened.locator(".lm-problem:visible")).to_have_count(0)
    expect(button(opened, "Plan")).to_be_enabled()


@pytest.mark.sweep
def test_a_stopped_run_can_continue(opened, planner, slow_service):
    """Stop in the middle of a run at a slow service ends it; the rest is offered again and completes the run."""
    button(opened, "Plan").click()
    spend_button(opened).click(timeout=60_000)
    expect(opened.locator(".lm-burn")).to_be_visible(timeout=60_000)
    button(opened, "Stop").click()
    expect(opened.get_by_text("Nothing is lost")).to_be_visible(timeout=60_000)
    expect(button(opened, "Plan")).to_be_enabled()
    assert planner.state is PlannerState.IDLE
    summary = planner.result.summary()
    assert 0 < summary.counts["ok"] < 40
    assert summary.held == 0
    expect(opened.get_by_text(re.compile("at the observed 1.00 credits for a picture"))).to_be_visible()
    button(opened, "Plan").click()
    left = 40 - summary.paid
    expect(spend_button(opened)).to_have_text(re.compile(f"^Spend up to {left} credits?"), timeout=60_000)
    expect(opened.get_by_text("The run continues where it stopped.")).to_be_visible()
    assert charged_requests(slow_service) == summary.counts["ok"]


def test_a_second_page_shows_the_same_state(opened, planner, serve_views, chromium):
    """A second page of the same planner shows form, offer and state, and may accept the offer."""
    button(opened, "Plan").click()
    expect(spend_button(opened)).to_be_visible(timeout=60_000)
    second = chromium.new_context().new_page()
    second.goto(serve_views({"planner": WebView("Planner", lambda: planner)}))
    expect(spend_button(second)).to_have_text(spend_button(opened).inner_text())
    second.get_by_label("Budget in credits").fill("30")
    expect(opened.get_by_label("Budget in credits")).to_have_value("30")
    expect(spend_button(opened)).to_have_count(0)
    button(second, "Plan").click()
    spend_button(opened).click(timeout=60_000)
    expect(second.get_by_text("Running …")).to_be_visible(timeout=60_000)
    button(second, "Stop").click()
    expect(button(opened, "Plan")).to_be_enabled(timeout=60_000)
    second.context.close()


def test_the_keyboard_is_enough(opened, planner):
    """Tab, space and enter reach the fields and buttons; the focus is visible."""
    opened.get_by_label("colors").focus()
    opened.keyboard.press("Space")
    expect(opened.get_by_text("Tick at least one feature.")).to_be_visible()
    opened.keyboard.press("Space")
    for _ in range(40):
        opened.keyboard.press("Tab")
        if opened.locator("button:focus").count():
            break
    expect(button(opened, "Plan")).to_be_focused()
    assert (
        opened.locator("button:focus-visible").evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    )
    opened.keyboard.press("Enter")
    expect(spend_button(opened)).to_be_visible(timeout=60_000)
    assert planner.result is None


def test_a_page_that_may_not_spend_has_no_button(tmp_path, serve_views, page):
    """Without `may_spend` the page prices a plan, and has the command line that runs it."""
    planner = PlannerView(pictures(tmp_path, 2), out=tmp_path / "out", features="colors", may_spend=False, budget=1)
    page.goto(serve_views({"planner": WebView("Planner", lambda: planner)}))
    button(page, "Plan").click()
    expect(page.get_by_text("This page spends nothing")).to_be_visible(timeout=60_000)
    options = "--features colors --prices demo --budget 1"
    command = f"lightmeter run {tmp_path / 'pictures.csv'} --out {tmp_path / 'out'} {options}"
    expect(page.locator(".lm-command code")).to_have_text(command)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button(page, "Copy").click()
    expect(button(page, "Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == command
    budgets = page.get_by_role("region", name="What if the budget changes").locator("tbody tr")
    expect(budgets.locator("th")).to_have_text(["Budget 1 (chosen)", "Budget 2"])
    expect(budgets.last.locator("td").nth(1)).to_have_text("100 %")
    button(page, "Budget 2").click()
    expect(page.get_by_label("Budget in credits")).to_have_value("2")
    assert spend_button(page).count() == 0


def test_fields_of_descriptions_are_shown_when_needed(tmp_path, serve_views, page):
    """Role, language and prompt are shown only if descriptions are asked for, and reach the options."""
    planner = PlannerView(pictures(tmp_path, 1), out=tmp_path / "out", features="colors")
    page.goto(serve_views({"planner": WebView("Planner", lambda: planner)}))
    expect(page.get_by_label("Role")).to_be_hidden()
    page.get_by_label("descriptions").check()
    page.get_by_label("Role").select_option("critic")
    page.get_by_label("Prompt").fill("<b>What is it?</b>")
    page.get_by_label("Language").fill("Dutch")
    expect(page.locator("textarea")).to_have_value("<b>What is it?</b>")
    page.get_by_label("Least tag score").fill("0.5")
    expect(button(page, "Plan")).to_be_enabled()
    expect(page.locator(".lm-error")).to_be_hidden()
    page.get_by_label("Role").focus()
    fields = ("critic", "Dutch", "<b>What is it?</b>")
    wait_until(lambda: attrgetter("role", "language", "prompt")(planner.options) == fields, "the fields are not set")
    page.get_by_label("descriptions").uncheck()
    expect(page.get_by_label("Role")).to_be_hidden()


def test_a_narrow_page_has_no_sideways_scroll(opened):
    """At a width of 390 px the page fits; only wide tables scroll in their own box."""
    opened.set_viewport_size({"width": 390, "height": 800})
    button(opened, "Plan").click()
    expect(spend_button(opened)).to_be_visible(timeout=60_000)
    assert opened.evaluate("document.documentElement.scrollWidth") == 390


def test_hidden_columns_of_the_matrix_have_a_shadow(tmp_path, serve_views, page):
    """On a phone, the matrix of prices shows at which edge more columns are hidden, before and after scrolling."""
    planner = PlannerView(pictures(tmp_path, 1), out=tmp_path / "out")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(serve_views({"planner": WebView("Planner", lambda: planner)}))
    matrix = page.locator(".lm-scroll:has(.lm-matrix)")
    expect(matrix).to_have_class("lm-scroll lm-more-right")
    assert matrix.evaluate("box => getComputedStyle(box).boxShadow") != "none"
    matrix.evaluate("box => box.scrollTo(9999, 0)")
    expect(matrix).to_have_class("lm-scroll lm-more-left")
    page.set_viewport_size({"width": 1200, "height": 800})
    expect(matrix).to_have_class("lm-scroll")


def test_prices_of_back_ends_are_below_their_feature(tmp_path, serve_views, page):
    """The price of a feature that several back ends have is a subtotal above theirs; the sum counts nothing twice."""
    prices = {"one": {"prices": {"tags": 300, "nsfw": 200}}, "two": {"prices": {"tags": 400}}}
    options = {"backends": "one,two", "features": "tags,nsfw", "prices": {"backends": prices}}
    planner = PlannerView(pictures(tmp_path, 1), out=tmp_path / "out", base_url="http://127.0.0.1:9", **options)
    page.goto(serve_views({"planner": WebView("Planner", lambda: planner)}))
    rows = page.get_by_role("region", name="Price by feature and back end").locator("tbody tr")
    expect(rows.locator("th")).to_have_text(["nsfw: one", "tags: 2 back ends", "one", "two", "Sum"])
    expect(rows.locator("td:nth-child(2)")).to_have_text(["0.2", "0.7", "0.3", "0.4", "0.9"])
    expect(page.locator("tr.lm-part th")).to_have_text(["one", "two"])
    expect(page.get_by_text("The service charges whole credits and rounds up")).to_be_visible()


def test_texts_of_data_stay_texts(tmp_path, serve_views, page):
    """File names and values of the manifest that are HTML markup are shown as text."""
    (tmp_path / "m.csv").write_text("path,<b>shop</b>\n<i>none</i>.jpg,<u>x</u>\n", encoding="utf-8")
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    with (tmp_path / "m.csv").open("a", encoding="utf-8") as file:
        file.write("a.jpg,<u>x</u>\n")
    planner = PlannerView(tmp_path / "m.csv", out=tmp_path / "out", features="colors")
    page.goto(serve_views({"planner": WebView("Planner", lambda: planner)}))
    button(page, "Plan").click()
    page.get_by_label("Price by column").select_option("<b>shop</b>")
    expect(page.get_by_text("<u>x</u>")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("<i>none</i>")).to_be_visible()
    assert page.locator(".lm-planner :is(b, i:not(.lm-mark), u)").count() == 0
