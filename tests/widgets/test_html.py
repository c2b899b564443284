"""HTML of cards, plans, quotes and progress."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.api.run_result import RunSummary
from lightmeter.errors import BudgetReached, Interrupted
from lightmeter.options import make_options
from lightmeter.planning.plan import ReasonCount
from lightmeter.planning.progress import Progress
from lightmeter.pricing.rates import default_rates
from lightmeter.ui.price_preview import RowGroup, price_quote
from lightmeter.widgets.markup import gauge, message, palette_strip, table
from lightmeter.widgets.planner_html import error_html, finished_fraction, progress_html, quote_html, summary_html

RATES = default_rates().with_defaults(("imagenet", "opennsfw", "palette"))
ANY = st.text(max_size=30) | st.sampled_from(["<script>x</script>", '"><b onload=1>', "' onerror='1", "&lt;", "</div>"])
OURS = {"div", "p", "i", "b", "h3", "ul", "li", "img", "span", "table", "caption", "thead", "tbody", "tr", "th", "td"}
OURS |= {"details", "summary", "code"}
ATTRIBUTES = {"class", "style", "role", "title", "alt", "src", "scope", "open"}


class Reader(HTMLParser):
    """Collects the elements, attributes and texts of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def assert_no_markup_from_data(html: str) -> None:
    """Assert that no data became an element, an attribute or an address."""
    for tag, attributes in Reader(html).elements:
        assert tag in OURS
        assert {name for name in attributes if not name.startswith("aria-")} <= ATTRIBUTES
        assert (
            not (attributes.get("src") or "data:image/jpeg;base64,")
            .removeprefix("data:image/jpeg;base64,")
            .strip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
        )


@given(word=ANY)
def test_plans_and_errors_escape_data(word):
    """Reasons, examples, folders and error messages are escaped."""
    reasons = [ReasonCount("failed", word, 1, word)]
    summary = RunSummary(1, {"failed": 1}, 1, 1, 0, None, None, None, 1.0, Path("out") / word.replace("\0", ""))
    assert_no_markup_from_data(summary_html(summary, reasons, Interrupted(word, hint=word)))
    assert_no_markup_from_data(error_html(RuntimeError(word)))


@pytest.mark.parametrize(
    ("budget", "words"),
    [(None, "No budget"), (100, "will not be reached"), (15, "may be reached"), (5, "will be reached")],
)
def test_quotes_state_whether_the_budget_suffices(budget, words):
    """A quote states whether the budget will end the run early."""
    html = quote_html(price_quote(RATES, make_options(budget=budget), [RowGroup("image", None, 20)]))
    assert_no_markup_from_data(html)
    text = Reader(html).text
    assert "10 to 20 credits" in text
    assert words in text


def test_quotes_without_rows_price_an_image():
    """Before planning, the price is that of one image."""
    assert "1 credit an image or frame" in Reader(quote_html(price_quote(RATES, make_options(), None))).text


def test_unbounded_quotes_say_at_least():
    """Without a frame limit and durations, the price has no upper end."""
    priced = price_quote(RATES, make_options(max_frames=0, budget=9), [RowGroup("video", None, 4)])
    assert "at least 2 credits" in Reader(quote_html(priced)).text


def test_progress_line():
    """The progress line states finished rows, rate, time left, and credits paid and held."""
    look = Progress("running", 10, {"pending": 4}, paid=3, held=2, budget=20, rate=1.5, eta_s=120)
    text = Reader(progress_html(look)).text
    for part in ("6 of 10 rows", "1.5/s", "about 2 min left", "3 credits paid of 20", "2 held"):
        assert part in text
    assert finished_fraction(look) == 0.6
    assert finished_fraction(Progress("planning", 10, {})) == 0
    assert "10 rows read" in progress_html(Progress("planning", 10, {}))


def test_an_early_end_states_how_to_continue():
    """A run that the budget stopped states the reason and how to continue."""
    summary = RunSummary(3, {"ok": 1, "over_budget": 2}, 1, 1, 0, 1, 9, 8, 2.0, Path("out"))
    text = Reader(summary_html(summary, [], BudgetReached("The budget is used up."))).text
    assert "used up" in text
    assert "1 ok, 2 over budget" in text
    assert "raise the budget, then Run continues from here" in text


@pytest.mark.parametrize(("severity", "text"), [(None, "not rated"), (0.0, "0.00"), (0.5, "0.50"), (1.7, "1.00")])
def test_gauges_show_their_figure(severity, text):
    """The gauge shows its value as text, limited to 0..1."""
    assert text in Reader(gauge(severity)).text


def test_palette_strips_hold_only_colors():
    """A palette strip shows valid colors with a text label, and leaves out anything else."""
    html = palette_strip([("#ff0000", 0.5), ("red;background:url(x)", 0.4), ("#00ff00", -1.0)])
    assert_no_markup_from_data(html)
    assert Reader(html).named("div")[0]["aria-label"] == "colours: #ff0000 50%, #00ff00 0%"
    assert "url" not in html
    assert "no colours" in palette_strip([])


def test_tables_format_values():
    """A table shows null as a dash, rounds numbers, and right-aligns number columns."""
    read = Reader(table("tags", ("name", "score"), [("cat", None), ("#ff0000", 0.12345), (True, 1_000)]))
    assert "None" not in read.text
    assert "0.123" in read.text
    assert "1,000" in read.text
    assert read.named("th") == [{"scope": "col"}, {"scope": "col", "class": "lm-number"}]


def test_unknown_moods_are_ignored():
    """An unknown mood adds no CSS class."""
    assert "lm-error" in message("x", "error")
    assert message("x", "odd") == message("x")
