"""Gallery queries: filters become SQL, result rows become cards."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.html_report.model import short_name, with_tags_and_colors
from lightmeter.html_report.queries import ITEM_COLORS, ITEM_TAGS
from lightmeter.tables.arrow.schema import TABLES, schema
from lightmeter.ui.gallery_queries import (
    PAGE_ROWS,
    STATUS_COUNTS,
    TAG_COUNTS,
    Card,
    Filters,
    SimilarItems,
    TagChoice,
    count_query,
    oklab,
    page_query,
    pages,
)


@pytest.fixture
def db():
    """Tables with three items: a red cat, a blue dog rated unsafe, and a failed row."""
    with duckdb.connect() as db:
        for table in TABLES:
            db.from_arrow(schema(table).empty_table()).create(table)
        db.execute(
            "INSERT INTO assets BY NAME SELECT * FROM (VALUES ('cat', 'http://h/cat.jpg', 'ok'), "
            "('dog', 'http://h/dog.jpg', 'ok'), ('bad', 'x/bad.jpg', 'failed')) AS t(item_id, url, status)"
        )
        db.execute(
            "INSERT INTO tags BY NAME SELECT * FROM (VALUES ('cat', 'Cat', 0.9), ('cat', 'Cat', 0.7), "
            "('cat', 'fur', 0.5), ('dog', 'dog', 0.8), ('dog', 'fur', 0.6)) AS t(item_id, name, score)"
        )
        db.execute(
            "INSERT INTO colors BY NAME SELECT * FROM (VALUES ('cat', '#ff0000', 0.6, 255, 0, 0), "
            "('dog', '#0000ff', 0.7, 0, 0, 255), ('dog', '#e01010', 0.1, 224, 16, 16)) "
            "AS t(item_id, hex, pixel_fraction, red, green, blue)"
        )
        db.execute(
            "INSERT INTO nsfw BY NAME SELECT * FROM (VALUES ('cat', 0.1), ('dog', 0.2), ('dog', 0.9)) "
            "AS t(item_id, severity)"
        )
        yield db


def rows_of(db, text, params=()):
    answer = db.execute(text, params)
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def ids(db, **filters):
    query, count = page_query(Filters(**filters)), count_query(Filters(**filters))
    found = [row["item_id"] for row in rows_of(db, *query)]
    assert rows_of(db, *count) == [{"items": len(found)}]
    return found


def test_no_filter_returns_all_in_manifest_order(db):
    """Without a filter all rows are returned in manifest order, failed ones included."""
    assert ids(db) == ["cat", "dog", "bad"]


def test_similar_items_keep_their_order(db):
    """Similar items are returned most similar first, combined with other filters; an empty list returns none."""
    assert ids(db, similar=SimilarItems("it", ("bad", "cat", "gone"))) == ["bad", "cat"]
    assert ids(db, similar=SimilarItems("it", ("bad", "cat")), tag="Cat", is_whole_tag=True) == ["cat"]
    assert ids(db, similar=SimilarItems("it", ())) == []


def test_whole_tags_match_exactly_and_parts_ignore_case(db):
    """A whole tag matches exactly; a part of a tag matches regardless of case."""
    assert ids(db, tag="Cat", is_whole_tag=True) == ["cat"]
    assert ids(db, tag="cat", is_whole_tag=True) == []
    assert ids(db, tag="CA") == ["cat"]
    assert ids(db, tag="u") == ["cat", "dog"]


def test_sql_characters_are_literals(db):
    """Wildcards and quotes in a tag filter are literal characters."""
    assert ids(db, tag="%") == []
    assert ids(db, tag="'; DROP TABLE tags; --") == []
    assert len(rows_of(db, "SELECT * FROM tags")) == 5


def test_color_filter_sorts_by_distance(db):
    """A color filter returns items with a near color, nearest first."""
    assert ids(db, color="#ff0000", color_distance=0.2) == ["cat", "dog"]
    assert ids(db, color="#ff0000", color_distance=0.01) == ["cat"]
    assert ids(db, color="#00ff00", color_distance=0.1) == []


def test_severity_is_the_maximum_of_an_item(db):
    """An item counts by its highest severity; a narrowed range leaves out unrated items."""
    assert ids(db, severity=(0.0, 0.5)) == ["cat"]
    assert ids(db, severity=(0.5, 1.0)) == ["dog"]
    assert ids(db, severity=(0.05, 1.0)) == ["cat", "dog"]


def test_filters_combine(db):
    """Several filters return the items that match all of them."""
    assert ids(db, tag="fur", color="#ff0000", color_distance=0.2, severity=(0.5, 1.0), status="ok") == ["dog"]
    assert ids(db, status="failed") == ["bad"]


def test_counts_are_per_item(db):
    """Tags and statuses are counted per item, most frequent first."""
    assert rows_of(db, TAG_COUNTS) == [
        {"name": "fur", "items": 2},
        {"name": "Cat", "items": 1},
        {"name": "dog", "items": 1},
    ]
    assert rows_of(db, STATUS_COUNTS) == [{"status": "ok", "items": 2}, {"status": "failed", "items": 1}]


def test_cards_hold_top_tags_and_colors(db):
    """A card has each tag once with its highest score, and its colors by share."""
    query = page_query(Filters())
    shown = [Card(**row) for row in rows_of(db, *query)]
    which = {"ids": ["cat", "dog", "bad"], "most": 4}
    cat, dog, bad = with_tags_and_colors(shown, rows_of(db, ITEM_TAGS, which), rows_of(db, ITEM_COLORS, which))
    assert cat.tags == (("Cat", 0.9), ("fur", 0.5))
    assert [colour for colour, _ in dog.colors] == ["#0000ff", "#e01010"]
    assert (bad.tags, bad.colors, bad.severity, bad.blurred) == ((), (), None, False)
    assert dog.blurred
    assert not cat.blurred
    assert cat.alt == "cat.jpg: Cat, fur"


def test_pages_are_complete_and_disjoint(db):
    """The pages hold every item once, in order."""
    db.execute("DELETE FROM assets")
    db.execute(
        "INSERT INTO assets BY NAME SELECT i::VARCHAR AS item_id, 'u' || i AS url, 'ok' AS status FROM range(60) t(i)"
    )
    found = []
    for page in range(pages(60)):
        query = page_query(replace(Filters(), page=page))
        found += [row["item_id"] for row in rows_of(db, *query)]
    assert found == [str(i) for i in range(60)]


@given(items=st.integers(0, 10_000), page=st.integers(-5, 10_000))
def test_page_numbers_are_limited(items, page):
    """Any page number is limited to the existing pages."""
    at = Filters().on_page(page, items).page
    assert 0 <= at < pages(items)
    assert at * PAGE_ROWS < max(items, 1)


@given(counts=st.dictionaries(st.text(min_size=1).map(str.strip).filter(bool), st.integers(1, 99), max_size=9))
def test_labels_stand_for_their_tags(counts):
    """Each label of the list parses to its tag, whatever characters the tag has."""
    choice = TagChoice(counts)
    for label, name in zip(choice.labels, counts, strict=True):
        assert choice.parse(label) == (name, True)


def test_typed_texts_are_parts_of_tags():
    """A text that is not a tag of the list is a part of tags to find; surrounding spaces are ignored."""
    choice = TagChoice({"cat": 3})
    assert choice.parse(" ca ") == ("ca", False)
    assert choice.parse("cat") == ("cat", True)
    assert choice.parse("") == ("", False)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a/b%20c.jpg?x=1/2#f", "b c.jpg"),
        ("https://h/", "https://h/"),
        ("media/cat.jpg", "cat.jpg"),
        ("C:\\pictures\\cat.jpg", "cat.jpg"),
    ],
)
def test_short_name_is_the_file_name(url, name):
    """The short name of an item is its file name, without the rest of the URL."""
    assert short_name(url) == name


def test_oklab_parameters_come_before_those_of_conditions():
    """The parameters of the color distance come before those of the conditions, as in the SQL text."""
    text, params = page_query(Filters(tag="t", color="#102030", status="ok"))
    assert params[:3] == oklab("#102030")
    assert text.count("?") == len(params)
