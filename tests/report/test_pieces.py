"""The small parts of the page, by themselves."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.html_fragments import format_duration, format_percent
from lightmeter.money.statement import Statement
from lightmeter.pricing.estimate import CreditRange
from lightmeter.report import queries
from lightmeter.report.charts import credit_chart, severity_chart, tag_chart, timeline_chart
from lightmeter.report.load import sort_colors
from lightmeter.report.markup import credits_, esc, link_html, palette_strip, table
from lightmeter.report.model import BINS, RequestTimeline, SeverityHistogram, TagFrequency, short_name

CREDITS = st.integers(0, 10**9)
COLORS = st.lists(st.tuples(st.from_regex(r"#[0-9a-f]{6}", fullmatch=True), st.floats(0, 1)), max_size=12)


class Marks(HTMLParser):
    """The elements of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)


@given(st.text(max_size=80))
def test_a_text_stays_text(text):
    """Whatever is escaped makes no element, inside an element or a quoted attribute, and reads as it was."""
    assert Marks(f'<p title="{esc(text)}">{esc(text)}</p>').tags == ["p"]
    shown = unescape(esc(text))
    assert len(shown) == len(text)
    assert all(one in {other, "\N{REPLACEMENT CHARACTER}"} for one, other in zip(shown, text, strict=True))


def test_a_long_text_is_cut():
    """A tag as long as a novel does not fill the page."""
    assert len(esc("x" * 10_000)) < 400


@given(st.text(max_size=40))
def test_only_web_addresses_become_links(rest):
    """A script, a file or a piece of data is shown and never opened; the attribute ends where it should."""
    for scheme in ("javascript:", "data:text/html,", "file:///", "vbscript:", " http:", ""):
        assert "a" not in Marks(link_html(f"{scheme}{rest}")).tags or rest.lower().startswith(("http://", "https://"))
    assert Marks(link_html(f"https://host/{rest}")).tags == ["a"]


@given(st.integers(0, 10**7), st.integers(1, 10**7))
def test_a_share_never_rounds_to_nothing_or_all(part, more):
    """Only nothing is 0 %, and only all is 100 %."""
    whole = part + more
    assert (format_percent(part, whole) == "0 %") == (part == 0)
    assert format_percent(part, whole) != "100 %"
    assert format_percent(whole, whole) == "100 %"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0304, "30 ms"), (4.2, "4.2 s"), (42.0, "42 s"), (180.0, "3 min"), (9000.0, "2.5 h")],
)
def test_lengths_of_time_are_said_as_people_do(value, said):
    """With the unit that leaves few digits."""
    assert format_duration(value) == said


def test_credits_are_counted_in_words():
    """One is one, many have separators, what is not known is not zero."""
    assert [credits_(count) for count in (0, 1, 12_345, None)] == [
        "0 credits",
        "1 credit",
        "12,345 credits",
        "not known",
    ]


@given(COLORS)
def test_a_palette_is_put_in_order_and_nothing_else(colors):
    """Sorting loses and adds no colour; black comes first, white is the last of the greys."""
    assert sorted(sort_colors(colors)) == sorted(colors)
    ordered = [name for name, _ in sort_colors([*colors, ("#000000", 0.1), ("#ffffff", 0.1), ("#ff0000", 0.1)])]
    assert ordered[0] == "#000000"
    assert ordered.index("#ffffff") < ordered.index("#ff0000")


def test_palettes_are_asked_for_without_counting_every_item():
    """Memory does not grow with the items: the exact count is out, and all else is the question as it is named."""
    assert "DISTINCT" not in queries.PALETTE
    assert "approx_count_distinct" in queries.PALETTE


@given(COLORS)
def test_a_strip_holds_colours_only(colors):
    """What is not `#rrggbb` is no style; no colours make no strip."""
    html = palette_strip([*colors, ("red;background:url(//evil)", 0.5), ("#12345", 0.5)], named=True)
    assert "evil" not in html
    assert len(re.findall("<i ", html)) == len(colors)


def test_numbers_stand_right_and_nothing_is_a_dash():
    """Also where a column has gaps."""
    html = table(("name", "count"), [("a", 1), ("b", None)])
    assert html.count('class="number"') == 3
    assert '<span class="none">-</span>' in html


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://host/a%20b/c%C3%A9.jpg?x=1", "cé.jpg"),
        ("C:\\pictures\\dog.png", "dog.png"),
        ("https://host/", "https://host/"),
        ("http://[broken/x.jpg", "http://[broken/x.jpg"),
        ("", ""),
    ],
)
def test_names_are_those_of_files(url, name):
    """An address that has none is its own name."""
    assert short_name(url) == name


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=40), st.integers(1, 10**9)), min_size=1, max_size=20))
def test_any_tag_can_be_drawn(tags):
    """Scripts that no font at hand has, formulas and markup: the drawing holds each as text, and is well formed."""
    chart = tag_chart([TagFrequency(name, items, 1, None) for name, items in tags], 10)
    for drawing in (chart.wide, chart.narrow):
        assert set(Marks(drawing).tags) <= {"svg", "defs", "g", "path", "text", "clippath", "rect", "use"}
        assert Marks(drawing).tags.count("text") == 2 * len(tags)
        assert not re.search(r"#00000\d|LM\d+ML|<!--|<style", drawing)


@settings(max_examples=8, deadline=None)
@given(CREDITS, CREDITS, st.none() | CREDITS, CREDITS, st.none() | CREDITS)
def test_any_statement_can_be_drawn(low, more, budget, paid, held):
    """Nothing predicted, no upper end, no budget, one a thousand times too large: there is a drawing of it."""
    predicted = CreditRange(low, None if held is None else low + more)
    chart = credit_chart(_statement(predicted, budget, paid, held or 0))
    assert f"{paid + (held or 0):,}" in chart.wide
    assert str(predicted) in chart.description


def _statement(predicted: CreditRange, budget: int | None, paid: int, held: int) -> Statement:
    """A statement of which only the figures that are drawn are set."""
    values = dict.fromkeys(Statement.__dataclass_fields__)
    return Statement(**{**values, "predicted": predicted, "budget": budget, "paid": paid, "held": held})


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 10**8), min_size=BINS, max_size=BINS))
def test_any_distribution_can_be_drawn(bins):
    """Each bin that holds items says how many; an empty one says nothing."""
    chart = severity_chart(SeverityHistogram(tuple(bins)))
    for items in filter(None, bins):
        assert f">{items:,}<" in chart.wide
    assert f"{sum(bins[5:]):,} of {sum(bins):,}" in chart.description


@settings(max_examples=8, deadline=None)
@given(
    st.dictionaries(st.integers(0, 119), st.tuples(st.integers(1, 10**6), CREDITS, CREDITS), min_size=1),
    st.sampled_from([0.1, 0.5, 1, 5, 60, 3600, 86_400, 7 * 86_400]),
)
def test_any_tempo_can_be_drawn(bins, bin_s):
    """From one request in a tenth of a second to months; pauses are drawn as pauses."""
    chart = timeline_chart(RequestTimeline("2026-01-01 00:00:00 UTC", bin_s, bins, None))
    assert f"{sum(sent for sent, _, _ in bins.values()):,} requests over" in chart.description
    assert "credits paid so far" in chart.wide
