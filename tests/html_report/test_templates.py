"""Escaping, formatting, macros and charts of the report, one by one."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.html_fragments import format_duration, format_percent
from lightmeter.html_report import queries
from lightmeter.html_report.charts import credit_chart, severity_chart, tag_chart, timeline_chart
from lightmeter.html_report.load import sort_colors
from lightmeter.html_report.model import BINS, RequestTimeline, SeverityHistogram, short_name
from lightmeter.html_report.page import format_credits, template_environment
from lightmeter.money.statement import Statement
from lightmeter.pricing.estimate import CreditRange

CREDITS = st.integers(0, 10**9)
COLORS = st.lists(st.tuples(st.from_regex(r"#[0-9a-f]{6}", fullmatch=True), st.floats(0, 1)), max_size=12)


class ParsedFragment(HTMLParser):
    """The names of the elements in a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)


def render(template: str, **values) -> str:
    """Render a template text in the report's environment; it may import the macros."""
    return template_environment().from_string(template).render(**values)


def render_macro(call: str, **values) -> str:
    """Render one call of a macro."""
    name = call.split("(", maxsplit=1)[0]
    return render(f"{{% from 'macros.html.j2' import {name} %}}{{{{ {call} }}}}", **values)


@given(st.text(max_size=80))
def test_values_are_escaped(text):
    """A value makes no element, in an element or in a quoted attribute, and reads as it was."""
    assert ParsedFragment(render('<p title="{{ text }}">{{ text }}</p>', text=text)).tags == ["p"]
    rendered = unescape(render("{{ text }}", text=text))
    assert len(rendered) == len(text)
    assert all(one in {other, "\N{REPLACEMENT CHARACTER}"} for one, other in zip(rendered, text, strict=True))


def test_a_long_text_is_cut():
    """A text of 10,000 characters is shortened."""
    assert len(render("{{ text }}", text="x" * 10_000)) < 400


@given(st.text(max_size=40))
def test_only_web_addresses_become_links(rest):
    """Addresses with other schemes are text; a quote in an address does not end the attribute."""
    for scheme in ("javascript:", "data:text/html,", "file:///", "vbscript:", " http:", ""):
        url = f"{scheme}{rest}"
        tags = ParsedFragment(render_macro("link(url, url)", url=url)).tags
        assert "a" not in tags or rest.lower().startswith(("http://", "https://"))
    assert ParsedFragment(render_macro("link(url, url)", url=f"https://host/{rest}")).tags == ["a"]


@given(st.integers(0, 10**7), st.integers(1, 10**7))
def test_a_share_never_rounds_to_nothing_or_all(part, more):
    """Only an empty part is 0 %, and only the whole is 100 %."""
    whole = part + more
    assert (format_percent(part, whole) == "0 %") == (part == 0)
    assert format_percent(part, whole) != "100 %"
    assert format_percent(whole, whole) == "100 %"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0304, "30 ms"), (4.2, "4.2 s"), (42.0, "42 s"), (180.0, "3 min"), (9000.0, "2.5 h")],
)
def test_durations_have_a_fitting_unit(value, expected):
    """A duration is formatted with the unit that leaves few digits."""
    assert format_duration(value) == expected


def test_credits_are_formatted_with_their_unit():
    """One credit is singular, large numbers have separators, and an unknown number is not zero."""
    assert [format_credits(count) for count in (0, 1, 12_345, None)] == [
        "0 credits",
        "1 credit",
        "12,345 credits",
        "not known",
    ]


@given(COLORS)
def test_sorting_keeps_all_colors(colors):
    """Sorting loses and adds no color; black comes first, white is the last of the grays."""
    assert sorted(sort_colors(colors)) == sorted(colors)
    ordered = [name for name, _ in sort_colors([*colors, ("#000000", 0.1), ("#ffffff", 0.1), ("#ff0000", 0.1)])]
    assert ordered[0] == "#000000"
    assert ordered.index("#ffffff") < ordered.index("#ff0000")


def test_the_palette_query_counts_approximately():
    """The palette query has no exact distinct count, whose memory would grow with the items."""
    assert "DISTINCT" not in queries.PALETTE
    assert "approx_count_distinct" in queries.PALETTE


@given(COLORS)
def test_a_palette_strip_holds_colors_only(colors):
    """What is not `#rrggbb` gets into no style attribute."""
    colors = [*colors, ("red;background:url(//evil)", 0.5), ("#12345", 0.5)]
    html = render_macro("palette_strip(colors, show_names=true)", colors=colors)
    assert "evil" not in html
    assert len(re.findall("<i ", html)) == len(colors) - 2


def test_number_columns_are_right_aligned_and_none_is_a_dash():
    """A number column keeps its alignment in rows without a value."""
    html = render(
        "{% from 'macros.html.j2' import table, cell, number_cell %}"
        "{% call(row) table(['name', 'count'], [('a', 1), ('b', none)], numbers=['count']) %}"
        "{{ cell('name', row[0]) }}{{ number_cell('count', row[1]) }}{% endcall %}"
    )
    assert html.count('class="number"') == 3
    assert '<span class="missing">-</span>' in html


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
def test_short_name_is_the_file_name(url, name):
    """The short name of a URL or path is its decoded file name, or the whole text if there is none."""
    assert short_name(url) == name


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=40), st.integers(1, 10**9)), min_size=1, max_size=20))
def test_any_tag_can_be_drawn(tags):
    """The chart holds any tag as text: scripts without a font, formulas and markup included."""
    chart = tag_chart([{"name": name, "items": items} for name, items in tags], 10)
    for drawing in (chart.wide, chart.narrow):
        elements = {"svg", "defs", "g", "path", "text", "clippath", "rect", "use"}
        assert set(ParsedFragment(drawing).tags) <= elements | {"title", "desc"}
        assert ParsedFragment(drawing).tags.count("text") == 2 * len(tags)
        assert not re.search(r"#00000\d|LM\d+ML|<!--|<style", drawing)


@settings(max_examples=8, deadline=None)
@given(CREDITS, CREDITS, st.none() | CREDITS, CREDITS, st.none() | CREDITS)
def test_any_statement_can_be_drawn(low, more, budget, paid, held):
    """The chart can be drawn without a prediction, an upper end or a budget, and with a very large budget."""
    predicted = CreditRange(low, None if held is None else low + more)
    chart = credit_chart(_statement(predicted, budget, paid, held or 0))
    assert f"{paid + (held or 0):,}" in chart.wide
    assert str(predicted) in chart.description


def _statement(predicted: CreditRange, budget: int | None, paid: int, held: int) -> Statement:
    """Return a statement with only the figures that the chart shows."""
    values = dict.fromkeys(Statement.__dataclass_fields__)
    return Statement(**{**values, "predicted": predicted, "budget": budget, "paid": paid, "held": held})


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 10**8), min_size=BINS, max_size=BINS))
def test_any_distribution_can_be_drawn(bins):
    """Each bin with items is labelled with their number."""
    chart = severity_chart(SeverityHistogram(tuple(bins)))
    for items in filter(None, bins):
        assert f">{items:,}<" in chart.wide
    assert f"{sum(bins[5:]):,} of {sum(bins):,}" in chart.description


@settings(max_examples=8, deadline=None)
@given(
    st.dictionaries(st.integers(0, 119), st.tuples(st.integers(1, 10**6), CREDITS, CREDITS), min_size=1),
    st.sampled_from([0.1, 0.5, 1, 5, 60, 3600, 86_400, 7 * 86_400]),
)
def test_any_timeline_can_be_drawn(bins, bin_s):
    """The chart can be drawn for spans from a tenth of a second to months, with gaps."""
    chart = timeline_chart(RequestTimeline("2026-01-01 00:00:00 UTC", bin_s, bins, None))
    assert f"{sum(requests for requests, _, _ in bins.values()):,} requests over" in chart.description
    assert "credits paid so far" in chart.wide
