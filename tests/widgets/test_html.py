"""HTML of cards, plans, quotes and progress."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightmeter.widgets.card_html import DETAIL_COLUMNS, MAX_ENTRIES, card_html, detail_html, position_html

from lightmeter.api.run_result import RunSummary
from lightmeter.errors import BudgetReached, Interrupted
from lightmeter.html_report.thumbnails import Thumbnail
from lightmeter.options import make_options
from lightmeter.planning.plan import ReasonCount
from lightmeter.planning.progress import Progress
from lightmeter.pricing.rates import default_rates
from lightmeter.ui.gallery_queries import Card, Filters
from lightmeter.ui.price_preview import RowGroup, price_quote
from lightmeter.widgets.markup import gauge, message, palette_strip, table
from lightmeter.widgets.planner_html import error_html, finished_fraction, progress_html, quote_html, summary_html

RATES = default_rates().with_defaults(("imagenet", "opennsfw", "palette"))
ANY = st.text(max_size=30) | st.sampled_from(["<script>x</script>", '"><b onload=1>', "' onerror='1", "&lt;", "</div>"])
CARD = Card(item_id="cat", url="http://h/cat.jpg", kind="image", status="ok", severity=0.1, tags=(("cat", 0.9),))
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


@given(word=ANY, other=ANY)
def test_cards_and_details_escape_data(word, other):
    """Any text of a manifest or an answer is escaped, in elements and in attributes."""
    texts = {"item_id": word, "url": word, "kind": other, "status": word, "reason": other, "error": word}
    card = Card(**texts, severity=0.9, duration_s=3.0, tags=((word, 0.5),), colors=((other, 0.5),))
    rows = {
        table: [dict.fromkeys(("frame", *columns), word) | {"frame": 1}] for table, columns in DETAIL_COLUMNS.items()
    }
    rows["colors"][0]["pixel_fraction"] = 0.5
    picture = Thumbnail(reason=word)
    assert_no_markup_from_data(card_html(card, picture, show_blurred=False))
    assert_no_markup_from_data(detail_html(card, picture, rows, interval_s=1, show_blurred=True))


@given(word=ANY)
def test_plans_and_errors_escape_data(word):
    """Reasons, examples, folders and error messages are escaped."""
    reasons = [ReasonCount("failed", word, 1, word)]
    summary = RunSummary(1, {"failed": 1}, 1, 1, 0, None, None, None, 1.0, Path("out") / word.replace("\0", ""))
    assert_no_markup_from_data(summary_html(summary, reasons, Interrupted(word, hint=word)))
    assert_no_markup_from_data(error_html(RuntimeError(word)))


def test_unsafe_pictures_are_blurred_first():
    """The page holds only the blurred version of a likely unsafe picture until the user chooses to see it."""
    card, picture = replace(CARD, severity=0.8), Thumbnail(jpeg=b"clear", blurred_jpeg=b"veil")
    blurred, clear = (
        Reader(card_html(card, picture, show_blurred=show_blurred)).named("img")[0] for show_blurred in (False, True)
    )
    assert blurred == {"src": "data:image/jpeg;base64,dmVpbA==", "alt": "cat.jpg, blurred"}
    assert clear == {"src": "data:image/jpeg;base64,Y2xlYXI=", "alt": "cat.jpg: cat"}


def test_missing_pictures_show_the_reason():
    """A picture that cannot be loaded is replaced by its reason, one that is loading by a word."""
    assert "HTTP 404" in Reader(card_html(CARD, Thumbnail(reason="HTTP 404"), show_blurred=False)).text
    assert "loading" in Reader(card_html(CARD, Thumbnail(), show_blurred=False)).text


def test_frames_show_their_time():
    """A finding of a video frame shows the frame's time, one of the whole video says so."""
    rows = {
        "tags": [
            {"frame": None, "name": "dog", "score": 0.9, "source": "s"},
            {"frame": 2, "name": "dog", "score": 0.8, "source": "s"},
        ]
    }
    text = Reader(detail_html(replace(CARD, kind="video"), Thumbnail(), rows, interval_s=5, show_blurred=False)).text
    assert "whole" in text
    assert "2 at 10 s" in text.replace("\N{NO-BREAK SPACE}", " ")


def test_long_lists_are_cut_with_a_note():
    """At most MAX_ENTRIES rows are shown, with a note that there are more."""
    rows = {"tags": [{"frame": None, "name": f"tag{i}.", "score": 0.5, "source": "s"} for i in range(MAX_ENTRIES + 1)]}
    text = Reader(detail_html(CARD, Thumbnail(), rows, interval_s=1, show_blurred=False)).text
    assert f"tag{MAX_ENTRIES - 1}." in text
    assert f"tag{MAX_ENTRIES}." not in text
    assert f"The first {MAX_ENTRIES} entries" in text


def test_gallery_position():
    """The line above the gallery states which items are shown, how many match, and how many there are."""
    assert "25 to 30 of 30 items" in position_html(Filters(page=1), 30, 30)
    assert "of 100" in position_html(Filters(), 30, 100)
    assert "clear them" in position_html(Filters(), 0, 100)
    assert "tables are empty" in position_html(Filters(), 0, 0)


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
